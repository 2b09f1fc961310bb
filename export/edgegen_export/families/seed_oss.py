"""Seed-OSS: Llama with biases on q, k and v."""

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama


def read_seed_oss(read: ConfigReader) -> DecoderConfig:
    """``SeedOssConfig``."""
    read.ignore("attention_out_bias")  # the checkpoint's tensors show it
    return read_llama(read)


SEED_OSS = Architecture(
    model_types=("seed_oss",),
    classes=("SeedOssForCausalLM",),
    read=read_seed_oss,
    tensors=LLAMA_TENSORS,
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 155136,
        "intermediate_size": 27648,
        "num_hidden_layers": 64,
        "num_attention_heads": 80,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 524288,
    },
)
