"""Hunyuan 3: Qwen3 with experts in most layers, weighed by sigmoids and chosen with a bias of each, and shared ones."""

from dataclasses import replace

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.experts import Routing
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.glm4_moe import DRAFTS
from edgegen_export.families.llama import BESIDE_MLP, LLAMA_DEFAULTS, read_llama
from edgegen_export.families.qwen_moe import qwen_mlp_tensors
from edgegen_export.reading.experts import read_mlp_types, with_experts, without_experts
from edgegen_export.reading.parts import with_qk_norm
from edgegen_export.reading.tensor_names import QK_NORM


def read_hy_v3(read: ConfigReader) -> DecoderConfig:
    """``HYV3Config``."""
    config = read_llama(read)
    read.ignore("enable_moe_fp32_combine")  # how sums are rounded in half precision
    config = with_qk_norm(config)
    sparse = read_mlp_types(read, config.num_layers, range(1, config.num_layers))
    if not sparse:
        without_experts(read, "num_shared_experts", "router_scaling_factor")
        return config
    width = read.positive("moe_intermediate_size")
    config = with_experts(read, config, "num_experts", normalized=True, width=width, layers=sparse)
    routing = Routing("sigmoid", choice_bias=True, epsilon=1e-20, scaling=read.above_zero("router_scaling_factor"))
    shared = width * read.count("num_shared_experts")
    return config.each_experts(lambda own: replace(own, routing=routing, shared_width=shared))


def tensors(config: DecoderConfig) -> TensorMap:
    module = "layers.{i}.mlp"
    beside: TensorMap = {
        "layers.{i}.mlp.router.choice_bias": f"{module}.expert_bias",
        **{f"layers.{{i}}.shared.{x}.weight": f"{module}.shared_mlp.{x}_proj.weight" for x in ("gate", "up", "down")},
    }
    return {**BESIDE_MLP, **QK_NORM, **qwen_mlp_tensors(config, beside, "router.gate")}


HY_V3 = Architecture(
    model_types=("hy_v3",),
    classes=("HYV3ForCausalLM",),
    read=read_hy_v3,
    tensors=tensors,
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 120832,
        "intermediate_size": 13312,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-5,
        "rope_theta": 11158840.0,
        "num_experts": 192,
        "num_experts_per_tok": 8,
        "num_shared_experts": 1,
        "moe_intermediate_size": 1536,
        "router_scaling_factor": 2.826,
    },
    drafts=DRAFTS,
    aliases={"num_local_experts": "num_experts"},
)
