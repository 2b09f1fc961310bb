"""InternLM 2 and 2.5: Llama with queries, keys and values fused key head by key head, and names of its own.
transformers does not have it: its checkpoints bring code of their own, which is never run.

InternLM 3: Llama with other names for its biases, and frequencies that stretch with the context.
"""

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama
from edgegen_export.reading.tensor_names import fused_qkv, named

_LAYER = "layers.{i}"


def _internlm2_tensors(config: DecoderConfig) -> TensorMap:
    return {
        "embed.weight": "tok_embeddings.weight",
        "layers.{i}.attn_norm.weight": f"{_LAYER}.attention_norm.weight",
        **fused_qkv(f"{_LAYER}.attention.wqkv", config.attention.kv_heads),
        **named("layers.{i}.attn.o", f"{_LAYER}.attention.wo"),
        "layers.{i}.mlp_norm.weight": f"{_LAYER}.ffn_norm.weight",
        "layers.{i}.mlp.gate.weight": f"{_LAYER}.feed_forward.w1.weight",
        "layers.{i}.mlp.up.weight": f"{_LAYER}.feed_forward.w3.weight",
        "layers.{i}.mlp.down.weight": f"{_LAYER}.feed_forward.w2.weight",
        "final_norm.weight": "norm.weight",
        "head.weight": "output.weight",
    }


INTERNLM2 = Architecture(
    model_types=("internlm2",),
    classes=("InternLM2ForCausalLM",),
    read=read_llama,
    tensors=_internlm2_tensors,
    defaults={**LLAMA_DEFAULTS, "vocab_size": 103168},
)


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
