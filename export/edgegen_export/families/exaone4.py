"""EXAONE 4: OLMo 2's norms after each block, QK norm per head; where some layers have a window, only those rotate."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.components.attention import QKNorm
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import LLAMA_DEFAULTS, read_llama
from edgegen_export.families.olmo import OLMO2_TENSORS
from edgegen_export.reading.layer_types import read_layer_types, read_window, read_window_pattern, rotating, sliding
from edgegen_export.reading.parts import with_qk_norm


def read_exaone4(read: ConfigReader) -> DecoderConfig:
    """``Exaone4Config``."""
    config, window = read_llama(read), read_window(read)
    count = config.num_layers
    if read.has("layer_types"):
        read.ignore("sliding_window_pattern")  # a number, or a word such as LLLG
        windowed = read_layer_types(read, count, [False] * count)
    else:
        windowed = read_window_pattern(read, count, period=4) if window else [False] * count
        read.ignore("sliding_window_pattern")
    config = rotating(config, None, [window is not None and not slides for slides in windowed])
    config = with_qk_norm(replace(config, block="post_norm"), QKNorm(config.norm, over="head"))
    return sliding(config, window, windowed)


EXAONE4 = Architecture(
    model_types=("exaone4",),
    classes=("Exaone4ForCausalLM",),
    read=read_exaone4,
    tensors=OLMO2_TENSORS,
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 102400,
        "intermediate_size": 16384,
        "num_key_value_heads": 32,
        "rms_norm_eps": 1e-5,
        "sliding_window": 4096,
    },
)
