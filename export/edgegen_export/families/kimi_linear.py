"""Kimi Linear: Kimi delta attention, and latent attention without positions in every fourth layer, with experts after
the first layers, routed as in DeepSeek-V3, with shared ones."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.kimi_delta_attention import KimiDeltaAttention
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.tensor_layouts import Joined, WithAxes
from edgegen_export.families.latent import LATENT_DEFAULTS, read_latent, tensors_beside_mlp
from edgegen_export.families.llama import DENSE_MLP
from edgegen_export.families.qwen3_5 import NET_KINDS
from edgegen_export.reading.experts import (
    DEEPSEEK_EXPERTS,
    behind_dense,
    by_layer,
    expert_tensors,
    read_mlp_types,
    with_deepseek_experts,
)
from edgegen_export.reading.mixers import mixing
from edgegen_export.reading.tensor_names import named_parts

_SIZES = {
    "head_dim": "linear_head_dim",
    "num_heads": "linear_num_heads",
    "short_conv_kernel_size": "linear_conv_kernel_dim",
}
"""Of delta attention, in the object of its own and beside it."""


def read_kimi_linear(read: ConfigReader) -> DecoderConfig:
    """``KimiLinearConfig``, and the keys of the model's own code, which has those of delta attention in an object."""
    config = read_latent(read, interleaved=False, rotates=False)
    read.ignore("rope_theta", "rope_scaling", "rope_parameters")  # what latent attention shares does not rotate
    read.refuse("mla_use_nope", (True,), "latent attention does not rotate in this family")
    read.ignore("num_nextn_predict_layers")  # of drafts
    read.refuse("moe_layer_freq", (1,), "all layers behind the dense ones have experts in this family")
    read.refuse("moe_router_activation_func", ("sigmoid",), "experts are weighed by sigmoids only in this family")
    read.refuse("topk_method", ("noaux_tc",), "experts are chosen with a bias of each in this family")
    if read.get("n_group", int, 1) > 1:
        read.refuse("use_grouped_topk", (True,), "experts are chosen from the best of their groups in this family")
    read.ignore("use_grouped_topk")
    inner = read.inner("linear_attn_config")
    beside = {key: read.positive(ours) for key, ours in _SIZES.items()}
    size, heads, width = (inner.positive(key, own) if inner else own for key, own in beside.items())
    net = sound_net(read, config, KimiDeltaAttention(heads, size, width, config.norm.eps, rank=size))
    recurrent = read.per_layer("layer_types", NET_KINDS, config.num_layers)
    listed = _listed(inner, config.num_layers) if inner else None
    recurrent = recurrent or listed or [i == 0 or i % 4 != 0 for i in range(config.num_layers)]
    config = mixing(read, config, net, recurrent)
    sparse = read_mlp_types(read, config.num_layers, behind_dense(read, "first_k_dense_replace", config.num_layers))
    return with_deepseek_experts(read, config, sparse, count_key="num_experts")


def _listed(inner: ConfigReader, layers: int) -> Sequence[bool] | None:
    """Which layers have delta attention, by the lists of both kinds, which count from one."""
    keys = ("kda_layers", "full_attn_layers")
    recurrent, full = (cast("list[Any] | None", inner.optional(key, list)) for key in keys)
    if recurrent is None or full is None:
        return None
    if sorted(map(str, [*recurrent, *full])) != sorted(str(i + 1) for i in range(layers)):
        inner.problem(f"kda_layers, full_attn_layers: each layer from 1 to {layers} expected once in one of them")
        return None
    return [i + 1 in recurrent for i in range(layers)]


def sound_net(read: ConfigReader, config: DecoderConfig, net: KimiDeltaAttention) -> KimiDeltaAttention:
    """``net``, whose convolution and activation are checked."""
    if net.width < 2 and read.sound("linear_conv_kernel_dim", "short_conv_kernel_size"):
        read.problem("short_conv_kernel_size = 1: a convolution over one token keeps no state; at least 2 expected")
    if config.mlp.activation != "silu":
        read.problem("hidden_act: Kimi delta attention is supported with silu only")
    return replace(net, width=max(2, net.width))


def delta_tensors(config: DecoderConfig, module: str, names: Mapping[str, str]) -> TensorMap:
    """Return the tensors of Kimi delta attention; ``names``: of its matrices in the ``module``, and of the layer's
    output."""
    net = config.first(KimiDeltaAttention)
    channels = net.channels if net else 0
    ours = "layers.{i}.delta"
    return {
        **named_parts(ours, module, {"q": "q_proj", "k": "k_proj", "v": "v_proj", "beta": "b_proj", **names}),
        f"{ours}.kernel.weight": Joined(f"{module}.{{n}}_conv1d.weight", tuple((x, channels) for x in "qkv")),
        f"{ours}.dt_offset": f"{module}.dt_bias",
        f"{ours}.rate": f"{module}.A_log",
        f"{ours}.norm.weight": f"{module}.o_norm.weight",
    }


_ATTENTION = "layers.{i}.self_attn"
_LOW_RANK = {"dt_in": "f_a_proj", "dt": "f_b_proj", "z_in": "g_a_proj", "z": "g_b_proj", "out": "o_proj"}


def tensors(config: DecoderConfig) -> TensorMap:
    mlps: TensorMap = DENSE_MLP
    if config.experts:
        sparse = {**expert_tensors(config, "layers.{i}.mlp", ("w1", "w3", "w2")), **DEEPSEEK_EXPERTS}
        mlps = by_layer(config, sparse, DENSE_MLP)
    return {
        **tensors_beside_mlp(config),
        **delta_tensors(config, _ATTENTION, _LOW_RANK),
        "layers.{i}.delta.rate": WithAxes(f"{_ATTENTION}.A_log", 2, 1),
        **mlps,
    }


KIMI_ALIASES = {
    "model_max_length": "max_position_embeddings",
    "moe_renormalize": "norm_topk_prob",
    "num_expert_group": "n_group",
    "num_local_experts": "num_experts",
    "num_experts_per_token": "num_experts_per_tok",
    "num_shared_experts": "n_shared_experts",
}

KIMI_LINEAR = Architecture(
    model_types=("kimi_linear",),
    classes=("KimiLinearForCausalLM",),
    read=read_kimi_linear,
    tensors=tensors,
    defaults={
        **{key: value for key, value in LATENT_DEFAULTS.items() if key != "rope_theta"},
        "vocab_size": 163840,
        "hidden_size": 2304,
        "intermediate_size": 9216,
        "num_hidden_layers": 27,
        "max_position_embeddings": 1048576,
        "rms_norm_eps": 1e-5,
        "q_lora_rank": None,
        "linear_head_dim": 128,
        "linear_num_heads": 32,
        "linear_conv_kernel_dim": 4,
        "moe_intermediate_size": 1024,
        "num_experts": 256,
        "n_shared_experts": 1,
        "num_experts_per_tok": 8,
        "routed_scaling_factor": 2.446,
        "n_group": 1,
        "topk_group": 1,
        "first_k_dense_replace": 1,
        "norm_topk_prob": True,
    },
    renamed={".block_sparse_moe.": ".mlp."},  # experts where they are published, all MLPs as transformers 5 writes them
    aliases=KIMI_ALIASES,
)
