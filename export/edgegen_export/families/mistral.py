"""Mistral: Llama with sliding window attention on every layer. Ministral: on those layers that the file says."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama
from edgegen_export.reading.layer_types import read_layer_types, read_window, sliding


def read_mistral(read: ConfigReader) -> DecoderConfig:
    """``MistralConfig``."""
    config = read_llama(read)
    return sliding(config, read_window(read), [True] * config.num_layers)


def read_ministral(read: ConfigReader) -> DecoderConfig:
    """``MinistralConfig``: Mistral whose layers may have a window each."""
    config = read_llama(read)
    window = read_window(read)
    windowed = read_layer_types(read, config.num_layers, [window is not None] * config.num_layers)
    return sliding(config, window, windowed)


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
)

MINISTRAL = replace(MISTRAL, model_types=("ministral",), classes=("MinistralForCausalLM",), read=read_ministral)
