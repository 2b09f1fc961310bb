"""ERNIE 4.5: Llama that rotates adjacent pairs; every matrix may have a bias."""

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama


def read_ernie(read: ConfigReader) -> DecoderConfig:
    """``Ernie4_5Config``."""
    read.ignore("use_bias")  # the checkpoint's tensors show it
    return read_llama(read, interleaved=True)


ERNIE4_5 = Architecture(
    model_types=("ernie4_5",),
    classes=("Ernie4_5ForCausalLM", "Ernie4_5_ForCausalLM"),
    read=read_ernie,
    tensors=LLAMA_TENSORS,
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 103424,
        "hidden_size": 1024,
        "intermediate_size": 3072,
        "num_hidden_layers": 18,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "head_dim": 128,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "tie_word_embeddings": True,
    },
)
