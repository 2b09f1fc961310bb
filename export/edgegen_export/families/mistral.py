"""Mistral: Llama with sliding window attention on every layer."""

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_IGNORED, LLAMA_PREFIXES, LLAMA_TENSORS, read_llama
from edgegen_export.families.shared import read_window, sliding


def read_mistral(read: ConfigReader) -> DecoderConfig:
    """``MistralConfig``."""
    config = read_llama(read)
    return sliding(config, read_window(read), [True] * config.num_layers)


MISTRAL = Architecture(
    model_types=("mistral",),
    classes=("MistralForCausalLM",),
    read=read_mistral,
    tensors=LLAMA_TENSORS,
    defaults={
        **LLAMA_DEFAULTS,
        "intermediate_size": 14336,
        "num_key_value_heads": 8,
        "max_position_embeddings": 4096 * 32,
        "sliding_window": 4096,
    },
    prefixes=LLAMA_PREFIXES,
    ignored=LLAMA_IGNORED,
)
