"""dots.llm1: Qwen3 with experts after the first layers, routed as in DeepSeek-V3, and shared ones."""

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.glm import glm4_moe_tensors
from edgegen_export.families.llama import LLAMA_DEFAULTS, read_llama
from edgegen_export.reading.experts import behind_dense, with_deepseek_experts
from edgegen_export.reading.layer_types import read_layer_types, read_window, sliding
from edgegen_export.reading.parts import with_qk_norm


def read_dots1(read: ConfigReader) -> DecoderConfig:
    """``Dots1Config``: the layers from ``max_window_layers`` on have a sliding window, if there is one."""
    config = read_llama(read)
    window, first = read_window(read), read.get("max_window_layers", int, 62)
    windowed = [window is not None and i >= first for i in range(config.num_layers)]
    config = sliding(config, window, read_layer_types(read, config.num_layers, windowed))
    config = with_qk_norm(config)
    return with_deepseek_experts(read, config, behind_dense(read, "first_k_dense_replace", config.num_layers))


DOTS1 = Architecture(
    model_types=("dots1",),
    classes=("Dots1ForCausalLM",),
    read=read_dots1,
    tensors=glm4_moe_tensors,
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 152064,
        "hidden_size": 4608,
        "intermediate_size": 10944,
        "moe_intermediate_size": 1408,
        "num_hidden_layers": 62,
        "num_key_value_heads": 32,
        "sliding_window": 4096,
        "n_group": 1,
        "topk_group": 1,
        "routed_scaling_factor": 1.0,
    },
    aliases={"num_local_experts": "n_routed_experts"},
)
