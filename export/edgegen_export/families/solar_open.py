"""Solar Open: Llama with experts in every layer, routed as in DeepSeek-V3, and shared ones."""

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.glm import GLM4_MOE_DEFAULTS, glm4_moe_tensors
from edgegen_export.families.llama import read_llama
from edgegen_export.reading.experts import with_deepseek_experts


def read_solar_open(read: ConfigReader) -> DecoderConfig:
    """``SolarOpenConfig``: all layers have experts, so that the width of an MLP is not used."""
    config = read_llama(read)
    return with_deepseek_experts(read, config, range(config.num_layers))


_LEFT_OUT = {"first_k_dense_replace", "partial_rotary_factor"}

SOLAR_OPEN = Architecture(
    model_types=("solar_open",),
    classes=("SolarOpenForCausalLM",),
    read=read_solar_open,
    tensors=glm4_moe_tensors,
    defaults={
        **{key: value for key, value in GLM4_MOE_DEFAULTS.items() if key not in _LEFT_OUT},
        "vocab_size": 196608,
        "moe_intermediate_size": 1280,
        "num_hidden_layers": 48,
        "num_attention_heads": 64,
        "head_dim": 128,
        "rope_theta": 1000000.0,
    },
    aliases={"num_local_experts": "n_routed_experts"},
)
