"""Qwen2 and Qwen2.5: Llama with QKV biases. Qwen3: Llama with QK norm."""

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama
from edgegen_export.reading.layer_types import read_layer_types, read_window, sliding
from edgegen_export.reading.parts import with_qk_norm
from edgegen_export.reading.tensor_names import QK_NORM

QWEN_DEFAULTS = {
    **LLAMA_DEFAULTS,
    "vocab_size": 151936,
    "intermediate_size": 22016,
    "num_key_value_heads": 32,
    "max_position_embeddings": 32768,
    "use_sliding_window": False,
    "sliding_window": 4096,
    "max_window_layers": 28,
}


def read_qwen2(read: ConfigReader) -> DecoderConfig:
    """``Qwen2Config``: with ``use_sliding_window``, the layers from ``max_window_layers`` on have a sliding window."""
    config = read_llama(read)
    read.refuse("use_mrope", (False,), "positions in several dimensions are not supported")
    used, window, first = read.flag("use_sliding_window"), read_window(read), read.get("max_window_layers", int, 28)
    windowed = [used and window is not None and i >= first for i in range(config.num_layers)]
    return sliding(config, window if used else None, read_layer_types(read, config.num_layers, windowed))


def read_qwen3(read: ConfigReader) -> DecoderConfig:
    """``Qwen3Config``."""
    config = read_qwen2(read)
    return with_qk_norm(config)


QWEN2 = Architecture(
    model_types=("qwen2",),
    classes=("Qwen2ForCausalLM",),
    read=read_qwen2,
    tensors=LLAMA_TENSORS,
    defaults=QWEN_DEFAULTS,
)

QWEN3 = Architecture(
    model_types=("qwen3",),
    classes=("Qwen3ForCausalLM",),
    read=read_qwen3,
    tensors=LLAMA_TENSORS | QK_NORM,
    defaults={**QWEN_DEFAULTS, "head_dim": 128},
)
