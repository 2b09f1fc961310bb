"""InternLM 3: Llama with other names for its biases, and frequencies that stretch with the context."""

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama


def read_internlm3(read: ConfigReader) -> DecoderConfig:
    """``InternLM3Config``."""
    read.ignore("qkv_bias", "bias")  # the checkpoint's tensors show whether a bias exists
    return read_llama(read)


INTERNLM3 = Architecture(
    model_types=("internlm3",),
    classes=("InternLM3ForCausalLM", "LlamaForCausalLM"),
    read=read_internlm3,
    tensors=LLAMA_TENSORS,
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 128512,
        "intermediate_size": 10240,
        "num_hidden_layers": 48,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "max_position_embeddings": 32768,
        "rms_norm_eps": 1e-5,
    },
)
