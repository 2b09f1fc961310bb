"""Inkling: attention with a learned number for each distance, and short convolutions of keys, values and sublayers."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import cast

from edgegen_export.architecture.architecture import Architecture, TensorMap
from edgegen_export.architecture.components.attention import QKNorm, QueryScale
from edgegen_export.architecture.components.experts import Experts, Routing
from edgegen_export.architecture.components.mlp import MLP
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.components.relative_attention import RelativeAttention
from edgegen_export.architecture.components.sublayer_convs import SublayerConvs
from edgegen_export.architecture.config import DecoderConfig, Layer
from edgegen_export.architecture.config_reader import ConfigReader
from edgegen_export.architecture.tensor_layouts import Interleaved, InTurns, Leading, Shape, SideBySide
from edgegen_export.reading.experts import behind_dense, by_layer, check_expert_sizes, read_counts, read_mlp_types
from edgegen_export.reading.parts import ACTIVATIONS
from edgegen_export.reading.tensor_names import QK_NORM

INKLING_ALIASES = {
    "sliding_window": "sliding_window_size",
    "num_local_experts": "n_routed_experts",
    "sconv_kernel_size": "conv_kernel_size",
    "model_max_length": "max_position_embeddings",
}


def read_inkling(read: ConfigReader) -> DecoderConfig:
    """``InklingTextConfig``."""
    norm = Norm("rms", read.number("rms_norm_eps", least=0))
    qk_norm = QKNorm(norm, over="head")

    def attention(own: RelativeAttention) -> RelativeAttention:
        return replace(own, scale=1 / own.head_dim, qk_norm=qk_norm)

    config = read_inkling_model(read, norm, _sliding(read), attention)
    # Of training, of drafts, and what no code reads.
    read.ignore("num_mtp_layers", "chain_hidden_post_norm", "mtp_hidden_states_first", "mtp_local_layer_ids")
    read.ignore("rms_norm_eps_moe_gate", "number_of_conv_states")
    wide = read.positive("intermediate_size")
    expert = wide if read.has("dense_intermediate_size") else read.positive("moe_intermediate_size")
    if read.has("dense_intermediate_size"):  # then the other is that of experts
        wide = read.positive("dense_intermediate_size")
        read.ignore("moe_intermediate_size")
    dense = MLP(wide, read.choice("hidden_act", ACTIVATIONS, "silu"), gated=True)
    sparse = read_mlp_types(read, config.num_layers, behind_dense(read, "dense_mlp_idx", config.num_layers))
    experts = _experts(read, config.hidden_size, expert, dense.activation == "silu" or not sparse)
    convs = SublayerConvs(read_conv_width(read), factor=True)
    return replace(
        config,
        layers=tuple(
            replace(own, mlp=experts if i in sparse else dense, extras=(convs,)) for i, own in enumerate(config.layers)
        ),
        logit_multiplier=1 / read.above_zero("logits_mup_width_multiplier"),
    )


def read_inkling_model(
    read: ConfigReader,
    norm: Norm,
    sliding: Sequence[bool],
    like: Callable[[RelativeAttention], RelativeAttention],
) -> DecoderConfig:
    """Read the keys that all Inkling configs share, without MLPs. ``sliding``: which layers have a window; ``like``:
    makes a model's attention from the common one."""
    positions, vocabulary, window = (
        read.positive("max_position_embeddings"),
        read.positive("vocab_size"),
        read.positive("sliding_window_size"),
    )
    used = read.optional("unpadded_vocab_size", int)
    if used is not None and used <= 0:
        read.problem(f"unpadded_vocab_size: must be positive, found {used}")
        used = None
    scale = None
    if read.has("log_scaling_n_floor"):
        scale = QueryScale(read.number("log_scaling_alpha"), read.positive("log_scaling_n_floor"), smooth=True)
    read.ignore("log_scaling_alpha")
    read.refuse("tie_word_embeddings", (False,), "embedding and head are apart in this family")
    whole, windowed = (_attention(read, prefix) for prefix in ("", "swa_"))
    whole = replace(whole, query_scale=scale, extent=read.positive("rel_extent"))
    windowed = replace(windowed, window=window, extent=window)
    return DecoderConfig(
        layers=tuple(Layer(like(windowed if it else whole)) for it in sliding),
        hidden_size=read.positive("hidden_size"),
        vocab_size=vocabulary if used is None else min(used, vocabulary),
        max_positions=positions,
        longest_context=positions,
        norm=norm,
        tied_head=False,
        embedding_norm=True,
    )


def _attention(read: ConfigReader, prefix: str) -> RelativeAttention:
    """Read the attention of layers with a window, or of layers without."""
    heads_key = f"{prefix}num_attention_heads"
    heads, size = read.count(heads_key), read.positive(f"{prefix}head_dim")
    size = read.head_dim(heads, size, size * heads, "hidden_size", heads_key)
    kv_heads = read.kv_heads(heads, heads_key, f"{prefix}num_key_value_heads")
    return RelativeAttention(
        heads, kv_heads, size, size**-0.5, rank=read.positive("d_rel"), extent=1, conv=read_conv_width(read)
    )


def read_conv_width(read: ConfigReader) -> int:
    """The width of all convolutions."""
    width = read.positive("conv_kernel_size")
    if width < 2 and read.sound("conv_kernel_size"):
        read.problem("conv_kernel_size = 1: a convolution over a single token keeps no state", "conv_kernel_size")
    return max(2, width)


def _sliding(read: ConfigReader) -> Sequence[bool]:
    """Which layers have a window: by ``layer_types``, by ``local_layer_ids``, or all but every sixth."""
    local = cast("list[object] | None", read.optional("local_layer_ids", list))
    layers = read.count("num_hidden_layers")
    if (listed := read_inkling_layer_types(read, layers)) is not None:
        return listed
    return [(i + 1) % 6 != 0 if local is None else i in local for i in range(layers)]


def read_inkling_layer_types(read: ConfigReader, layers: int) -> Sequence[bool] | None:
    """Which layers have a window, where ``layer_types`` says so."""
    return read.per_layer("layer_types", {"hybrid": False, "hybrid_sliding": True}, layers)


def _experts(read: ConfigReader, hidden: int, width: int, plain: bool) -> Experts:
    count, per_token = read_counts(read, "n_routed_experts")
    shared = read.count("n_shared_experts")
    read.refuse("shared_expert_sink", (True,), "the router weighs shared experts with the others")
    check_expert_sizes(read, {"hidden_size": hidden, "moe_intermediate_size": width})
    if not plain:
        read.problem("hidden_act: experts are supported with silu only")
    scaling = read.above_zero("route_scale")
    routing = Routing("sigmoid", choice_bias=True, scaling=scaling, shared=shared)
    return Experts(count, per_token, True, width, shared_width=shared * width, routing=routing)


_LAYER: TensorMap = {
    "layers.{i}.attn_norm.weight": "layers.{i}.input_layernorm.weight",
    "layers.{i}.mlp_norm.weight": "layers.{i}.post_attention_layernorm.weight",
    **QK_NORM,
    **{f"layers.{{i}}.attn.{x}.weight": f"layers.{{i}}.self_attn.{x}_proj.weight" for x in "qkvo"},
    "layers.{i}.attn.relative.weight": "layers.{i}.self_attn.r_proj.weight",
    "layers.{i}.attn.profiles": "layers.{i}.self_attn.rel_logits_proj.proj",
    **{f"layers.{{i}}.attn.{x}_conv.weight": f"layers.{{i}}.self_attn.{x}_sconv.conv1d.weight" for x in "kv"},
    **{f"layers.{{i}}.{x}_conv.weight": f"layers.{{i}}.{x}_sconv.conv1d.weight" for x in ("attn", "mlp")},
}
_DENSE: TensorMap = {
    **{f"layers.{{i}}.mlp.{x}.weight": f"layers.{{i}}.mlp.{x}_proj.weight" for x in ("gate", "up", "down")},
    "layers.{i}.mlp_conv.factor": "layers.{i}.mlp.global_scale",
}
_GATE, _UP, _DOWN = (f"layers.{{i}}.mlp.{x}.weight" for x in ("gate", "up", "down"))
_SHARED_GATE, _SHARED_UP, _SHARED_DOWN = (f"layers.{{i}}.shared.{x}.weight" for x in ("gate", "up", "down"))
_ROUTER: TensorMap = {
    "layers.{i}.mlp.router.weight": "layers.{i}.mlp.gate.weight",
    "layers.{i}.mlp_conv.factor": "layers.{i}.mlp.gate.global_scale",
}


def _counts(config: DecoderConfig) -> tuple[int, int]:
    """How many experts the router chooses from, and how many are shared."""
    return (config.experts.count, config.experts.routing.shared) if config.experts else (1, 1)


def tensors(config: DecoderConfig) -> TensorMap:
    """As transformers names them."""
    count, shared = _counts(config)
    experts = "layers.{i}.mlp.shared_experts"
    sparse: TensorMap = {
        **_ROUTER,
        "layers.{i}.mlp.router.choice_bias": "layers.{i}.mlp.gate.e_score_correction_bias",
        (_GATE, _UP): Interleaved("layers.{i}.mlp.experts.gate_up_proj", count, stacked=True),
        _DOWN: Interleaved("layers.{i}.mlp.experts.down_proj", count, stacked=True),
        _SHARED_GATE: Interleaved(f"{experts}.gate_proj", shared, stacked=True),
        _SHARED_UP: Interleaved(f"{experts}.up_proj", shared, stacked=True),
        _SHARED_DOWN: SideBySide(f"{experts}.down_proj", shared),
    }
    return {
        "embed.weight": Leading("embed_tokens.weight"),
        "embed_norm.weight": "embed_tokens.embed_norm.weight",
        "final_norm.weight": "norm.weight",
        "head.weight": Leading("lm_head.weight"),
        **_LAYER,
        **by_layer(config, sparse, _DENSE),
    }


_PUBLISHED = (
    (".input_layernorm.", ".attn_norm."),
    (".post_attention_layernorm.", ".mlp_norm."),
    *((f".self_attn.{x}_proj.", f".attn.w{x}_d{y}.") for x, y in zip("qkvr", "uvvu", strict=True)),
    (".self_attn.o_proj.", ".attn.wo_ud."),
    (".self_attn.", ".attn."),
    ("_sconv.conv1d.", "_sconv."),
)
"""Parts of names as transformers has them, and as published files do."""


def published_tensors(config: DecoderConfig, _shape: Shape) -> TensorMap:
    """Of checkpoints as the model's own code writes them."""
    count, shared = _counts(config)
    dense: TensorMap = {
        (_GATE, _UP): InTurns("layers.{i}.mlp.w13_dn.weight"),
        _DOWN: "layers.{i}.mlp.w2_md.weight",
        "layers.{i}.mlp_conv.factor": "layers.{i}.mlp.global_scale",
    }
    sparse: TensorMap = {
        **_ROUTER,
        "layers.{i}.mlp.router.choice_bias": "layers.{i}.mlp.gate.bias",
        (_GATE, _UP): InTurns("layers.{i}.mlp.experts.w13_weight", count),
        _DOWN: Interleaved("layers.{i}.mlp.experts.w2_weight", count, stacked=True),
        (_SHARED_GATE, _SHARED_UP): InTurns("layers.{i}.mlp.shared_experts.shared_w13_weight", shared),
        _SHARED_DOWN: SideBySide("layers.{i}.mlp.shared_experts.shared_w2_weight", shared),
    }
    return {
        "embed.weight": Leading("embed.weight"),
        "embed_norm.weight": "embed_norm.weight",
        "final_norm.weight": "norm.weight",
        "head.weight": Leading("unembed.weight"),
        **{ours: _published(theirs) for ours, theirs in _LAYER.items() if isinstance(theirs, str)},
        **by_layer(config, sparse, dense),
    }


def _published(name: str) -> str:
    for ours, theirs in _PUBLISHED:
        name = name.replace(ours, theirs)
    return name


INKLING = Architecture(
    model_types=("inkling_text",),
    classes=("InklingForCausalLM",),
    read=read_inkling,
    tensors=tensors,
    variant=("layers.0.attn.wq_du.weight", published_tensors),
    defaults={
        "vocab_size": 201024,
        "hidden_size": 6144,
        "num_hidden_layers": 66,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "swa_num_attention_heads": 64,
        "swa_num_key_value_heads": 16,
        "swa_head_dim": 128,
        "sliding_window_size": 512,
        "d_rel": 16,
        "rel_extent": 1024,
        "log_scaling_alpha": 0.1,
        "max_position_embeddings": 131072,
        "rms_norm_eps": 1e-6,
        "conv_kernel_size": 4,
        "intermediate_size": 24576,
        "moe_intermediate_size": 3072,
        "n_routed_experts": 256,
        "num_experts_per_tok": 6,
        "n_shared_experts": 2,
        "route_scale": 8.0,
        "logits_mup_width_multiplier": 24.0,
    },
    prefixes=("", "model.", "model.llm."),
    heads=(r"mtp\..*",),
    aliases={**INKLING_ALIASES, "embedding_multiplier": "logits_mup_width_multiplier"},
)
