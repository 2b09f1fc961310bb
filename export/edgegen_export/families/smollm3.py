"""SmolLM3: Llama with some layers without RoPE (NoPE)."""

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader, every
from edgegen_export.families.llama import LLAMA_DEFAULTS, LLAMA_TENSORS, read_llama
from edgegen_export.reading.layer_types import read_layer_types, read_window, rotating, sliding


def read_smollm3(read: ConfigReader) -> DecoderConfig:
    """``SmolLM3Config``: a 1 in ``no_rope_layers`` is a layer with RoPE; each ``no_rope_layer_interval``-th layer has
    none. Sliding windows, if used, are on the layers without RoPE."""
    config = read_llama(read)
    read.ignore("max_window_layers")  # Qwen's key
    n = config.num_layers
    interval = every(read.positive("no_rope_layer_interval"), False, True, n)
    rotates = read.per_layer("no_rope_layers", {0: False, 1: True}, n) or interval
    config = rotating(config, None, [not turns for turns in rotates])
    used, window = read.flag("use_sliding_window"), read_window(read)
    windowed = [used and window is not None and not turns for turns in rotates]
    return sliding(config, window, read_layer_types(read, n, windowed))


SMOLLM3 = Architecture(
    model_types=("smollm3",),
    classes=("SmolLM3ForCausalLM",),
    read=read_smollm3,
    tensors=LLAMA_TENSORS,
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 128256,
        "hidden_size": 2048,
        "num_hidden_layers": 36,
        "num_attention_heads": 16,
        "num_key_value_heads": 4,
        "max_position_embeddings": 32768,
        "rope_theta": 2000000.0,
        "no_rope_layer_interval": 4,
        "tie_word_embeddings": True,
    },
)
