"""Laguna: Qwen3 with a softplus of a gate on attention, heads, windows and rotations by layer, and experts weighed by
sigmoids and chosen with a bias of each."""

from dataclasses import replace
from functools import partial

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.attention import Gate
from edgegen_export.architecture.components.experts import Routing
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import BESIDE_MLP, LLAMA_DEFAULTS, read_llama
from edgegen_export.families.qwen import UNGATED, qwen_mlp_tensors
from edgegen_export.reading.experts import read_mlp_types, with_experts, without_experts
from edgegen_export.reading.layer_types import read_layer_types, read_window, rotating, sliding
from edgegen_export.reading.parts import with_qk_norm
from edgegen_export.reading.rope import read_rope
from edgegen_export.reading.tensor_names import QK_NORM


def read_laguna(read: ConfigReader) -> DecoderConfig:
    """``LagunaConfig``."""
    config = read_llama(read, partial=True)
    windowed = read_layer_types(read, config.num_layers, [False] * config.num_layers)
    positions = read.positive("max_position_embeddings")
    local = read_rope(read, config.attention.head_dim, positions, layer_type="sliding_attention", partial=True)
    config = sliding(rotating(config, local, windowed), read_window(read), windowed)
    config = with_qk_norm(_with_heads(read, config))
    gate = _gate(read)
    config = config.each_attention(lambda own: replace(own, gate=gate))
    read.refuse("moe_apply_router_weight_on_input", (False,), "experts are weighed by what they give")
    sparse = read_mlp_types(read, config.num_layers, range(1, config.num_layers))
    if not sparse:
        without_experts(read, "shared_expert_intermediate_size", "moe_routed_scaling_factor")
        read.ignore("moe_router_logit_softcapping")
        return config
    width, shared = read.positive("moe_intermediate_size"), read.positive("shared_expert_intermediate_size")
    routing = Routing(
        "sigmoid",
        choice_bias=True,
        scaling=read.above_zero("moe_routed_scaling_factor"),
        softcap=read.number("moe_router_logit_softcapping", 0.0, least=0) or None,
    )
    config = with_experts(read, config, "num_experts", normalized=True, width=width, layers=sparse)
    return config.each_experts(lambda own: replace(own, routing=routing, shared_width=shared))


def _with_heads(read: ConfigReader, config: DecoderConfig) -> DecoderConfig:
    """``config`` with the number of heads that each layer has, where the file says it."""
    key, kv_heads = "num_attention_heads_per_layer", config.attention.kv_heads
    if not read.has(key):
        return config
    counts = read.sizes(key, config.num_layers)
    if any(count % kv_heads for count in counts) and read.sound(key):
        read.problem(f"{key}: multiples of num_key_value_heads = {kv_heads} expected, found {list(counts)}")
        return config
    for i, count in enumerate(counts):
        config = config.each_attention(partial(replace, heads=count), [i])
    return config


def _gate(read: ConfigReader) -> Gate:
    read.refuse("gating", (True, "per-head", "per-element"), "gates are per-head or per-element")
    return Gate("channel" if read.value("gating") == "per-element" else "head", softplus=True)


def tensors(config: DecoderConfig) -> TensorMap:
    beside: TensorMap = {
        **UNGATED,
        "layers.{i}.mlp.router.choice_bias": "layers.{i}.mlp.experts.e_score_correction_bias",
    }
    gate: TensorMap = {"layers.{i}.attn.gate.weight": "layers.{i}.self_attn.g_proj.weight"}
    return {**BESIDE_MLP, **QK_NORM, **gate, **qwen_mlp_tensors(config, beside)}


LAGUNA = Architecture(
    model_types=("laguna",),
    classes=("LagunaForCausalLM",),
    read=read_laguna,
    tensors=tensors,
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 100352,
        "hidden_size": 2048,
        "intermediate_size": 8192,
        "num_hidden_layers": 40,
        "num_attention_heads": 48,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "max_position_embeddings": 131072,
        "sliding_window": 512,
        "num_experts": 256,
        "num_experts_per_tok": 8,
        "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
        "moe_routed_scaling_factor": 1.0,
        "rope_parameters": {
            "full_attention": {"rope_type": "default", "rope_theta": 500000.0, "partial_rotary_factor": 0.5},
            "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0},
        },
    },
    aliases={"num_local_experts": "num_experts"},
)
