"""Hunyuan A13B: Hunyuan with experts in every layer, and one more that every token uses."""

from dataclasses import replace
from functools import partial

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.config import DecoderConfig, Layer
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.hunyuan import HUNYUAN, HUNYUAN_TENSORS, read_hunyuan
from edgegen_export.reading.experts import expert_tensors, with_experts

_LATENT = ("kv_lora_rank", "q_lora_rank", "qk_nope_head_dim", "qk_rope_head_dim", "v_head_dim")
"""Keys of latent attention, which published files have and do not use."""


def read_hunyuan_moe(read: ConfigReader) -> DecoderConfig:
    """``HunYuanMoEV1Config``: some keys may have a value for each layer."""
    config = read_hunyuan(read)
    read.refuse("use_mla", (False,), "latent attention is not supported")
    read.ignore(*_LATENT)
    read.refuse("group_limited_greedy", (False,), "experts are in one group in this family")
    read.ignore("n_group", "topk_group")
    read.refuse("norm_topk_prob", (True,), "the weights of experts add up to one in this family")
    read.refuse("routed_scaling_factor", (1, False), "experts are not scaled in this family")
    read.refuse("use_mixed_mlp_moe", (True,), "an expert is shared in this family")
    read.refuse("moe_layer_num_skipped", (0,), "every layer has experts in this family")
    read.ignore("moe_drop_tokens", "moe_random_routing_dropped_token", "capacity_factor")  # of the training
    _same(read, "num_shared_expert", config.num_layers, 1)
    _same(read, "moe_intermediate_size", config.num_layers, config.mlp.width)
    per_token = read.sizes("num_experts_per_tok", config.num_layers)
    config = with_experts(read, config, "num_experts", normalized=True, per_token=max(per_token))
    config = config.each_experts(lambda own: replace(own, shared_width=own.width))
    for i, used in enumerate(per_token):
        config = config.each_layer(partial(_using, used=used), [i])
    return config


def _using(layer: Layer, used: int) -> Layer:
    assert layer.experts
    return replace(layer, mlp=replace(layer.experts, per_token=used))


def _same(read: ConfigReader, key: str, layers: int, value: int) -> None:
    """Record a problem where ``key`` is said to be anything but ``value``."""
    if read.has(key) and set(read.sizes(key, layers)) != {value} and read.sound(key):
        read.problem(f"{key}: {value} expected in every layer")


_MLP = "layers.{i}.mlp"


def tensors(config: DecoderConfig) -> TensorMap:
    names = ("gate_proj", "up_proj", "down_proj")
    return {
        **{ours: theirs for ours, theirs in HUNYUAN_TENSORS.items() if ".mlp." not in ours},
        **expert_tensors(config, _MLP, names, router="gate.wg"),
        **{f"layers.{{i}}.shared.{x}.weight": f"{_MLP}.shared_mlp.{x}_proj.weight" for x in ("gate", "up", "down")},
    }


HUNYUAN_MOE = Architecture(
    model_types=("hunyuan_v1_moe",),
    classes=("HunYuanMoEV1ForCausalLM",),
    read=read_hunyuan_moe,
    tensors=tensors,
    defaults={**HUNYUAN.defaults, "num_experts": 1, "num_experts_per_tok": 1},
    aliases={"moe_topk": "num_experts_per_tok", "num_local_experts": "num_experts"},
)
