"""Mellum 2: Qwen3 MoE whose layers with a window rotate in a way of their own."""

from edgegen_export.architecture.architecture import Architecture
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import LLAMA_DEFAULTS, read_llama
from edgegen_export.families.qwen import qwen3_moe_tensors, read_qwen_experts
from edgegen_export.reading.experts import read_mlp_types
from edgegen_export.reading.layer_types import read_layer_types, read_window, rotating, sliding
from edgegen_export.reading.parts import with_qk_norm
from edgegen_export.reading.rope import read_rope


def read_mellum(read: ConfigReader) -> DecoderConfig:
    """``MellumConfig``."""
    config = read_llama(read)
    read.ignore("mtp_layer_types", "mtp_mlp_layer_types")  # of layers that propose further tokens
    windowed = read_layer_types(read, config.num_layers, [False] * config.num_layers)
    positions = read.positive("max_position_embeddings")
    local = read_rope(read, config.attention.head_dim, positions, layer_type="sliding_attention")
    config = sliding(rotating(config, local, windowed), read_window(read), windowed)
    config = with_qk_norm(config)
    return read_qwen_experts(read, config, read_mlp_types(read, config.num_layers, range(config.num_layers)))


MELLUM = Architecture(
    model_types=("mellum",),
    classes=("MellumForCausalLM",),
    read=read_mellum,
    tensors=qwen3_moe_tensors,
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 98304,
        "hidden_size": 2304,
        "intermediate_size": 7168,
        "num_hidden_layers": 28,
        "num_key_value_heads": 4,
        "head_dim": 128,
        "max_position_embeddings": 131072,
        "sliding_window": 1024,
        "num_experts": 64,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 896,
        "norm_topk_prob": True,
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 500000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0},
        },
    },
    heads=(r"mtp\..*",),
    aliases={"num_local_experts": "num_experts"},
)
