"""OLMo 3: OLMo 2 with a sliding window in three of four layers, which take no part in RoPE scaling."""

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader, every
from edgegen_export.families.olmo import OLMO2, OLMO2_TENSORS, read_olmo2
from edgegen_export.reading.layer_types import read_layer_types, read_window, rotating, sliding
from edgegen_export.reading.rope import read_rope


def read_olmo3(read: ConfigReader) -> DecoderConfig:
    """``Olmo3Config``."""
    config = read_olmo2(read)
    windowed = read_layer_types(read, config.num_layers, every(4, False, True, config.num_layers))
    positions = read.positive("max_position_embeddings")
    local = read_rope(read, config.attention.head_dim, positions, layer_type="sliding_attention")
    return sliding(rotating(config, local, windowed), read_window(read), windowed)


OLMO3 = Architecture(
    model_types=("olmo3",),
    classes=("Olmo3ForCausalLM",),
    read=read_olmo3,
    tensors=OLMO2_TENSORS,
    defaults={**OLMO2.defaults, "sliding_window": 4096},
)
