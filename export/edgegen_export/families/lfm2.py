"""LFM2: Llama with normalized queries and keys, and short convolutions instead of attention in most layers. LFM2 MoE:
LFM2 with a mixture of experts in all but the first layers, chosen and weighed by sigmoids."""

from collections.abc import Sequence
from dataclasses import replace
from typing import cast

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.experts import Routing
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.components.short_conv import ShortConv
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.families.llama import BESIDE_MLP, LLAMA_DEFAULTS, read_llama
from edgegen_export.reading.experts import behind_dense, by_layer, expert_tensors, with_experts, without_experts
from edgegen_export.reading.mixers import mixing, sound_width
from edgegen_export.reading.parts import with_qk_norm
from edgegen_export.reading.tensor_names import joined, named

LFM2_KINDS = {"conv": True, "full_attention": False}
"""Whether layers of a type have a convolution."""


def read_lfm2(read: ConfigReader) -> DecoderConfig:
    """``Lfm2Config``."""
    config = read_lfm(read)
    config = with_convolutions(read, config, _convolutions(read, config.num_layers))
    read.refuse("block_use_swiglu", (True,), "only gated MLPs are known")
    read.ignore(
        "block_dim", "block_norm_eps", "conv_dim", "conv_dim_out", "num_heads"
    )  # other names of sizes, not read
    read.ignore(*(f"{block}_use_xavier_init" for block in ("block", "conv")))
    read.ignore("block_mlp_init_scale", "block_out_init_scale")
    inner = _inner(read, config.mlp.width)
    return config.each_mlp(lambda own: replace(own, width=inner))


def read_lfm(read: ConfigReader, *, proportional: bool = False) -> DecoderConfig:
    """Read the keys that all LFM configs share, with attention in every layer. ``proportional``: as in
    :func:`read_llama`."""
    norm = Norm("rms", read.number("norm_eps", least=0))
    read.refuse("use_pos_enc", (True,), "attention without rotary positions is not supported")
    read.ignore("conv_bias")  # the checkpoint's tensors show it
    return with_qk_norm(read_llama(read, norm=norm, proportional=proportional))


def with_convolutions(read: ConfigReader, config: DecoderConfig, which: Sequence[bool]) -> DecoderConfig:
    """``config`` with short convolutions instead of attention in the layers selected by ``which``."""
    return mixing(read, config, ShortConv(sound_width(read, "conv_L_cache")), which)


def _convolutions(read: ConfigReader, layers: int) -> tuple[bool, ...]:
    """Which layers have a convolution: by ``layer_types``, or those that ``full_attn_idxs`` does not name."""
    listed = read.per_layer("layer_types", LFM2_KINDS, layers)
    attending = cast("list[object] | None", read.optional("full_attn_idxs", list))
    if listed is not None:
        return listed
    return tuple(attending is not None and i not in attending for i in range(layers))


def _inner(read: ConfigReader, stated: int) -> int:
    """The MLP's width: two thirds of what the config says, times a factor, up to a multiple; or as it says."""
    multiple, factor = read.positive("block_multiple_of"), read.optional("block_ffn_dim_multiplier", float)
    if not read.flag("block_auto_adjust_ff_dim", True):
        return stated
    inner = int(2 * stated / 3)
    return inner if factor is None else -(-int(factor * inner) // multiple) * multiple


LFM_TENSORS: TensorMap = {
    **BESIDE_MLP,
    "layers.{i}.attn_norm.weight": "layers.{i}.operator_norm.weight",
    "layers.{i}.mlp_norm.weight": "layers.{i}.ffn_norm.weight",
    "final_norm.weight": "embedding_norm.weight",
    **joined("layers.{i}.conv.in_proj", [f"layers.{{i}}.conv.{x}" for x in "bcv"]),
    **named("layers.{i}.conv.kernel", "layers.{i}.conv.conv"),
    **named("layers.{i}.conv.out", "layers.{i}.conv.out_proj"),
}
"""Names of tensors in all LFM models, without MLPs."""

LFM_MLP: TensorMap = {
    "layers.{i}.mlp.gate.weight": "layers.{i}.feed_forward.w1.weight",
    "layers.{i}.mlp.up.weight": "layers.{i}.feed_forward.w3.weight",
    "layers.{i}.mlp.down.weight": "layers.{i}.feed_forward.w2.weight",
}

LFM2_ATTENTION: TensorMap = {
    **named("layers.{i}.attn.o", "layers.{i}.self_attn.out_proj"),
    **{f"layers.{{i}}.attn.{x}_norm.weight": f"layers.{{i}}.self_attn.{x}_layernorm.weight" for x in "qk"},
}

LFM2 = Architecture(
    model_types=("lfm2",),
    classes=("Lfm2ForCausalLM",),
    read=read_lfm2,
    tensors={**LFM_TENSORS, **LFM2_ATTENTION, **LFM_MLP},
    defaults={
        **LLAMA_DEFAULTS,
        "vocab_size": 65536,
        "hidden_size": 2560,
        "intermediate_size": 12288,
        "num_key_value_heads": 8,
        "max_position_embeddings": 128000,
        "norm_eps": 1e-5,
        "rope_theta": 1e6,
        "tie_word_embeddings": True,
        "conv_L_cache": 3,
        "block_multiple_of": 256,
        "block_ffn_dim_multiplier": 1.0,
    },
    aliases={"block_ff_dim": "intermediate_size", "tie_embedding": "tie_word_embeddings", "theta": "rope_theta"},
)


_EPSILON = 1e-6
"""Added to the sum of weights that they are divided by, as transformers does."""


def read_lfm2_moe(read: ConfigReader) -> DecoderConfig:
    """``Lfm2MoeConfig``."""
    config = read_lfm(read)
    convolves = read.per_layer("layer_types", LFM2_KINDS, config.num_layers)
    if convolves is None and read.sound("layer_types"):
        read.problem("layer_types: missing, so it is unknown which layers have convolutions")
    config = with_convolutions(read, config, convolves or [False] * config.num_layers)
    read.ignore("num_heads")  # another name of a size, not read
    return _with_experts(read, config)


def _with_experts(read: ConfigReader, config: DecoderConfig) -> DecoderConfig:
    """``config`` with experts in the layers after the first dense ones."""
    sparse = behind_dense(read, "num_dense_layers", config.num_layers)
    if not sparse:
        without_experts(read)
        read.ignore("use_expert_bias", "routed_scaling_factor")
        return config
    normalized, biased = read.flag("norm_topk_prob"), read.flag("use_expert_bias")
    scale, width = read.above_zero("routed_scaling_factor"), read.positive("moe_intermediate_size")
    config = with_experts(read, config, "num_experts", normalized=normalized, width=width, layers=sparse)
    routing = Routing("sigmoid", biased, epsilon=_EPSILON, scaling=scale)
    return config.each_experts(lambda own: replace(own, routing=routing))


def _moe_tensors(config: DecoderConfig) -> TensorMap:
    beside = {**LFM_TENSORS, **LFM2_ATTENTION}
    if config.experts is None:
        return {**beside, **LFM_MLP}
    module = "layers.{i}.feed_forward"
    experts = expert_tensors(config, module, ("w1", "w3", "w2"))
    bias: TensorMap = {"layers.{i}.mlp.router.choice_bias": f"{module}.expert_bias"}
    return {**beside, **by_layer(config, {**experts, **bias}, LFM_MLP)}


LFM2_MOE = Architecture(
    model_types=("lfm2_moe",),
    classes=("Lfm2MoeForCausalLM",),
    read=read_lfm2_moe,
    tensors=_moe_tensors,
    defaults={
        **{key: value for key, value in LFM2.defaults.items() if not key.startswith("block_")},
        "hidden_size": 2048,
        "intermediate_size": 7168,
        "moe_intermediate_size": 1792,
        "num_dense_layers": 2,
        "num_experts": 32,
        "num_experts_per_tok": 4,
        "norm_topk_prob": True,
        "use_expert_bias": True,
        "routed_scaling_factor": 1.0,
    },
    aliases={"tie_embedding": "tie_word_embeddings", "num_local_experts": "num_experts"},
)
