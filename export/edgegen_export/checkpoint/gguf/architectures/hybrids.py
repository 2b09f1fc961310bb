"""Hybrids: layers with Mamba-2 mixers or gated delta nets, without keys, among layers of attention or in them."""

from collections.abc import Mapping
from dataclasses import replace

from edgegen_export.checkpoint.gguf import config_rules as rule
from edgegen_export.checkpoint.gguf.architecture import (
    OF_STREAM,
    PREFIX,
    RMS_NORM_EPS,
    SIZES,
    TOP,
    DraftLayer,
    GgufArchitecture,
    Modules,
    gated,
)
from edgegen_export.checkpoint.gguf.architectures.experts import (
    GRANITEMOE,
    IN_TWO,
    QWEN2MOE,
    QWEN_EXPERTS,
    SHARED_EXPERT,
    each_expert,
    expert_rules,
    shared_width,
)
from edgegen_export.checkpoint.gguf.architectures.llama_like import ATTENTION, GATED_MLP, LLAMA
from edgegen_export.checkpoint.gguf.config_rules import Entries, Rule
from edgegen_export.checkpoint.gguf.layouts import (
    Each,
    Flat,
    NetHeads,
    OnePlus,
    Parameter,
    PerKeyHead,
    Rates,
    TiledValues,
    Unsqueezed,
)
from edgegen_export.checkpoint.gguf.metadata_reader import MetadataReader


def _mixer(module: str) -> Modules:
    return {
        "ssm_in": f"{module}.in_proj",
        "ssm_conv1d": Unsqueezed(f"{module}.conv1d", axis=1),
        "ssm_dt": Parameter(f"{module}.dt"),
        "ssm_a": Rates(f"{module}.A_log"),
        "ssm_d": Flat(f"{module}.D"),
        "ssm_norm": Flat(f"{module}.norm"),
        "ssm_out": f"{module}.out_proj",
    }


def _sizes(conv: str, state: str, groups: str, heads: str, *, head: str, all_heads: str | None = None) -> Rule:
    """The sizes of mixers: width of the convolution, numbers of a state, groups, heads, the channels of a head, and the
    channels of all heads.

    ``expand`` says these as a multiple of the model's width.
    """
    names = {"conv_kernel": conv, "state_size": state, "group_count": groups, "time_step_rank": heads}

    def rule(read: MetadataReader) -> Entries:
        entries: Entries = {theirs: read.integer(f"ssm.{ours}") for ours, theirs in names.items()}
        channels, heads = read.integer("ssm.inner_size"), read.integer("ssm.time_step_rank")
        if channels % heads:
            read.wrong("ssm.inner_size", f"{channels} channels cannot be shared by {heads} heads")
        entries[head] = max(1, channels // heads)
        unit = read.hidden_size if all_heads and all_heads.endswith("expand") else 1
        if channels % unit:
            read.wrong("ssm.inner_size", f"{channels} is not a multiple of embedding_length = {unit}")
        return entries | ({all_heads: channels // unit} if all_heads else {})

    return rule


_MAMBA = ("mamba_d_conv", "mamba_d_state", "mamba_n_groups", "mamba_n_heads")


def _granite4(read: MetadataReader) -> Entries:
    """Granite 4-H; and Bamba, which rotates, and has neither multipliers nor experts."""
    rotates = read.flag("rope.scaling.finetuned", True)
    inner = read.integer("feed_forward_length")
    experts = read.integer("expert_count", 0, least=0)
    used = read.integer("expert_used_count", 0, least=0)
    kinds = ["attention" if attends else "mamba" for attends in read.layers_with_attention()]
    rope = rule.partial_rotary("partial_rotary_factor")(read) if rotates else {}
    read.ignore("rope.freq_base", "rope.dimension_count")
    return {
        "layer_types": kinds,
        "position_embedding_type": "rope" if rotates else "nope",
        "num_local_experts": experts,
        **({"num_experts_per_tok": used} if experts else {}),
        "intermediate_size": inner,
        "shared_intermediate_size": read.integer("expert_shared_feed_forward_length", inner),
        "attention_multiplier": read.real("attention.scale", read.heads.size**-0.5),
        "embedding_multiplier": read.real("embedding_scale", 1.0),
        "residual_multiplier": read.real("residual_scale", 1.0),
        "logits_scaling": read.real("logit_scale", 1.0),
        **rope,
    }


_WITHOUT_MLP = {ours: theirs for ours, theirs in SIZES.items() if ours != "feed_forward_length"}
GRANITEHYBRID = replace(
    GRANITEMOE,
    model_type="granitemoehybrid",
    integers=_WITHOUT_MLP,
    reals={RMS_NORM_EPS: "rms_norm_eps"},
    layer={
        **GRANITEMOE.layer,
        **gated("shared_mlp", IN_TWO),
        **_mixer("mamba"),
    },
    rules=(
        _granite4,
        rule.grouped_heads,
        rule.head_dim_if_own,
        _sizes(*_MAMBA, head="mamba_d_head", all_heads="mamba_expand"),
    ),
)


def _without_attention(read: MetadataReader) -> Entries:
    """No heads, no MLP."""
    read.attends = False
    for key in ("attention.head_count", "feed_forward_length"):
        read.refuse(key, (0,), "this architecture has none")
    return {}


_RECURRENT_TOP: Modules = {
    "token_embd": "backbone.embeddings",
    "output_norm": "backbone.norm_f",
    "output": "lm_head",
}
_BACKBONE = "backbone.layers.{i}."
_NORMALIZED = "ssm.dt_b_c_rms"


def _mixer1(module: str) -> Modules:
    """A Mamba-1 mixer, the original's name of it ``module``."""
    return {
        "ssm_in": f"{module}.in_proj",
        "ssm_conv1d": Unsqueezed(f"{module}.conv1d", axis=1),
        "ssm_x": f"{module}.x_proj",
        "ssm_dt": f"{module}.dt_proj",
        "ssm_a": Rates(f"{module}.A_log", matrix=True),
        "ssm_d": Flat(f"{module}.D"),
        "ssm_out": f"{module}.out_proj",
    }


def _mamba(read: MetadataReader) -> Entries:
    """Mamba; and Falcon Mamba, which normalizes time steps, B and C."""
    normalizes = read.flag(_NORMALIZED, False)
    kind = {"model_type": "falcon_mamba"} if normalizes else {}
    return {
        **kind,
        "conv_kernel": read.integer("ssm.conv_kernel"),
        "intermediate_size": read.integer("ssm.inner_size"),
        "state_size": read.integer("ssm.state_size"),
        "time_step_rank": read.integer("ssm.time_step_rank"),
    }


MAMBA = GgufArchitecture(
    model_type="mamba",
    integers=OF_STREAM,
    reals={RMS_NORM_EPS: "layer_norm_epsilon"},
    layer={"attn_norm": "norm", **_mixer1("mixer")},
    top=_RECURRENT_TOP,
    prefix=_BACKBONE,
    rules=(_without_attention, _mamba),
)
MAMBA2 = replace(
    MAMBA,
    model_type="mamba2",
    layer={"attn_norm": "norm", **_mixer("mixer")},
    rules=(
        _without_attention,
        _sizes("conv_kernel", "state_size", "n_groups", "num_heads", head="head_dim", all_heads="expand"),
    ),
)


def _period(read: MetadataReader, kind: str, which: list[bool], about: str) -> Entries:
    """How often layers of a kind come, and where the first is."""
    found = [i for i, it in enumerate(which) if it]
    offset = found[0] if found else read.layers
    period = found[1] - offset if found[1:] else read.layers + 1
    if found != [i for i in range(read.layers) if i % period == offset]:
        read.wrong(about, f"layers in equal distances expected, found {found}")
    return {f"{kind}_layer_period": period, f"{kind}_layer_offset": offset}


def _jamba(read: MetadataReader) -> Entries:
    """Where experts are is seen by their routers."""
    routed = [read.has("blk.{i}.ffn_gate_inp.weight", i) for i in range(read.layers)]
    attends, heads = read.layers_with_attention(), "attention.head_count_kv"
    count, used = read.integer("expert_count", 0, least=0), read.integer("expert_used_count", 0, least=0)
    inner = read.integer("ssm.inner_size")
    if inner % read.hidden_size:
        read.wrong("ssm.inner_size", f"{inner} is not a multiple of embedding_length = {read.hidden_size}")
    return {
        **_period(read, "attn", attends, heads),
        **(_period(read, "expert", routed, "expert_count") if any(routed) else {}),
        "num_experts": max(1, count) if any(routed) else 1,
        "num_experts_per_tok": max(1, used),
        "mamba_d_conv": read.integer("ssm.conv_kernel"),
        "mamba_d_state": read.integer("ssm.state_size"),
        "mamba_dt_rank": read.integer("ssm.time_step_rank"),
        "mamba_expand": max(1, inner // read.hidden_size),
    }


_FEED_FORWARD: Modules = {
    "ffn_norm": "pre_ff_layernorm",
    **gated("feed_forward"),
}
"""The MLP of Jamba and Falcon-H1, and the norm before it."""

JAMBA = replace(
    LLAMA,
    model_type="jamba",
    layer={
        "attn_norm": "input_layernorm",
        **ATTENTION,
        **_mixer1("mamba"),
        **{f"ssm_{x}_norm": f"mamba.{x}_layernorm" for x in ("dt", "b", "c")},
        **_FEED_FORWARD,
        "ffn_gate_inp": "feed_forward.router",
        **each_expert("feed_forward.experts"),
    },
    top={**TOP, "output_norm": "model.final_layernorm"},
    rules=(_jamba, rule.grouped_heads),
)


FALCON_H1 = replace(
    LLAMA,
    model_type="falcon_h1",
    layer={"attn_norm": "input_layernorm", **ATTENTION, **_mixer("mamba"), **_FEED_FORWARD},
    top={**TOP, "output_norm": "model.final_layernorm"},
    rules=(
        *rule.WHOLE_HEADS,
        rule.has("mamba_rms_norm", "ssm_norm.weight"),
        _sizes(*_MAMBA, head="mamba_d_head", all_heads="mamba_d_ssm"),
    ),
    constants={"mamba_norm_before_gate": False},
)
"""Its multipliers are in the tensors."""


def _nemotron_h(read: MetadataReader) -> Entries:
    attends, has_mlp = read.layers_with_attention(), read.layers_with("feed_forward_length")
    kinds = ["attention" if keys else "mlp" if mlp else "mamba" for keys, mlp in zip(attends, has_mlp, strict=True)]
    read.ignore("rope.freq_base", "rope.dimension_count")  # its attention has no positions
    return {"layers_block_type": kinds, "intermediate_size": read.integer("feed_forward_length", 1)}


NEMOTRON_H = GgufArchitecture(
    model_type="nemotron_h",
    integers=_WITHOUT_MLP,
    reals={RMS_NORM_EPS: "layer_norm_epsilon"},
    layer={
        "attn_norm": "norm",
        **{f"attn_{x}": f"mixer.{x}_proj" for x in "qkv"},
        "attn_output": "mixer.o_proj",
        **_mixer("mixer"),
        "ffn_up": "mixer.up_proj",
        "ffn_down": "mixer.down_proj",
    },
    top=_RECURRENT_TOP,
    prefix=_BACKBONE,
    rules=(
        _nemotron_h,
        rule.grouped_heads,
        rule.head_dim,
        _sizes("conv_kernel", "ssm_state_size", "n_groups", "mamba_num_heads", head="mamba_head_dim"),
    ),
)


def _nemotron_h_moe(read: MetadataReader) -> Entries:
    """Return the entries of layers and experts; layers without keys are told by their tensors: a router where there are
    experts."""
    attends, has_mlp = read.layers_with_attention(), read.layers_with("feed_forward_length")
    routed = [read.has("blk.{i}.ffn_gate_inp.weight", i) for i in range(read.layers)]
    kinds = [
        "attention" if keys else "moe" if router else "mlp" if mlp else "mamba"
        for keys, mlp, router in zip(attends, has_mlp, routed, strict=True)
    ]
    widths = {
        width for width, kind in zip(read.by_layer("feed_forward_length"), kinds, strict=True) if kind == "mlp"
    } or {1}
    width = widths.pop()
    if type(width) is not int or widths:
        read.wrong("feed_forward_length", "one number for all MLPs without experts expected")
        width = 1
    read.ignore("rope.freq_base", "rope.dimension_count")  # its attention has no positions
    return {
        "layers_block_type": kinds,
        "intermediate_size": width,
        "n_routed_experts": read.integer("expert_count"),
        "n_shared_experts": read.integer("expert_shared_count", 1),
        "num_experts_per_tok": read.integer("expert_used_count"),
        "moe_intermediate_size": read.integer("expert_feed_forward_length"),
        "moe_shared_expert_intermediate_size": read.integer("expert_shared_feed_forward_length"),
        "moe_latent_size": read.integer("moe_latent_size", 0, least=0) or None,
        "norm_topk_prob": read.flag("expert_weights_norm", False),
        "routed_scaling_factor": read.real("expert_weights_scale", 1.0),
        "n_group": read.integer("expert_group_count", 1),
        "topk_group": read.integer("expert_group_used_count", 1),
    }


NEMOTRON_H_MOE = replace(
    NEMOTRON_H,
    layer={
        **NEMOTRON_H.layer,
        "ffn_gate_inp": "mixer.gate",
        "exp_probs_b": Parameter("mixer.gate.e_score_correction"),
        "ffn_up_exps": Each("mixer.experts.{n}.up_proj"),
        "ffn_down_exps": Each("mixer.experts.{n}.down_proj"),
        "ffn_up_shexp": "mixer.shared_experts.up_proj",
        "ffn_down_shexp": "mixer.shared_experts.down_proj",
        "ffn_latent_down": "mixer.fc1_latent_proj",
        "ffn_latent_up": "mixer.fc2_latent_proj",
    },
    rules=(_nemotron_h_moe, rule.weighed_by_sigmoids(2), *NEMOTRON_H.rules[1:]),
)


def _delta_nets(read: MetadataReader) -> Entries:
    """Gated delta nets, and attention in the last of every few layers."""
    keys, values = read.integer("ssm.group_count"), read.integer("ssm.time_step_rank")
    key_size, channels = read.integer("ssm.state_size"), read.integer("ssm.inner_size")
    if channels % values or values % keys:
        read.wrong("ssm.time_step_rank", f"{values} does not share {channels} channels, or {keys} heads of keys")
    else:
        read.net = NetHeads(keys, values, key_size, channels // values)
    layers, interval = rule.without_drafts(read)["num_hidden_layers"], read.integer("full_attention_interval", 4)
    return {
        "num_hidden_layers": layers,
        "layer_types": ["linear_attention" if (i + 1) % interval else "full_attention" for i in range(layers)],
        "linear_conv_kernel_dim": read.integer("ssm.conv_kernel"),
        "linear_num_key_heads": keys,
        "linear_num_value_heads": values,
        "linear_key_head_dim": key_size,
        "linear_value_head_dim": max(1, channels // values),
    }


_NET = "linear_attn"
_NET_LAYER: Modules = {
    "attn_norm": OnePlus("input_layernorm"),
    "post_attention_norm": OnePlus("post_attention_layernorm"),
    **ATTENTION,
    "attn_q_norm": OnePlus("self_attn.q_norm"),
    "attn_k_norm": OnePlus("self_attn.k_norm"),
    "ssm_norm": f"{_NET}.norm",
}
_NET_TOP: Modules = {**TOP, "output_norm": OnePlus("model.norm")}
_NET_DRAFT = DraftLayer(
    {
        "blk.{i}.nextn.eh_proj": "mtp.fc",
        "blk.{i}.nextn.enorm": OnePlus("mtp.pre_fc_norm_embedding"),
        "blk.{i}.nextn.hnorm": OnePlus("mtp.pre_fc_norm_hidden"),
        "blk.{i}.nextn.shared_head_norm": OnePlus("mtp.norm"),
        "blk.{i}.nextn.embed_tokens": "mtp.embed_tokens",
        "blk.{i}.nextn.shared_head_head": "mtp.shared_head.head",
    },
    "mtp.layers.0.",
)
_NET_RULES = (*rule.PARTS_OF_HEADS, _delta_nets)
QWEN3NEXT = replace(
    QWEN2MOE,
    model_type="qwen3_next",
    layer={
        **_NET_LAYER,
        **QWEN_EXPERTS,
        **SHARED_EXPERT,
        "attn_qkv": f"{_NET}.in_proj_qkv",
        "attn_gate": f"{_NET}.in_proj_z",
        "ssm_ba": f"{_NET}.in_proj_ba",
        "ssm_conv1d": Unsqueezed(f"{_NET}.conv1d", axis=1),
        "ssm_dt": Parameter(f"{_NET}.dt"),
        "ssm_a": Rates(f"{_NET}.A_log"),
        "ssm_out": f"{_NET}.out_proj",
    },
    top=_NET_TOP,
    joined=(
        PerKeyHead(
            (f"{PREFIX}{_NET}.in_proj_qkv.weight", f"{PREFIX}{_NET}.in_proj_z.weight"),
            f"{PREFIX}{_NET}.in_proj_qkvz.weight",
        ),
    ),
    rules=(*_NET_RULES, *expert_rules(True), shared_width),
    draft=_NET_DRAFT,
)


QWEN35 = replace(
    LLAMA,
    model_type="qwen3_5_text",
    layer={
        **_NET_LAYER,
        **GATED_MLP,
        "attn_qkv": TiledValues(f"{_NET}.in_proj_qkv"),
        "attn_gate": TiledValues(f"{_NET}.in_proj_z"),
        "ssm_alpha": TiledValues(f"{_NET}.in_proj_a", size=1),
        "ssm_beta": TiledValues(f"{_NET}.in_proj_b", size=1),
        "ssm_conv1d": TiledValues(f"{_NET}.conv1d", axis=1),
        "ssm_dt": TiledValues(f"{_NET}.dt", size=1, parameter=True),
        "ssm_a": Rates(f"{_NET}.A_log", tiled=True),
        "ssm_out": TiledValues(f"{_NET}.out_proj", columns=True),
    },
    top=_NET_TOP,
    rules=(*_NET_RULES, rule.text_only),
    draft=_NET_DRAFT,
)
QWEN35MOE = replace(
    QWEN35,
    model_type="qwen3_5_moe_text",
    integers=_WITHOUT_MLP,
    layer={**QWEN35.layer, **QWEN_EXPERTS, **SHARED_EXPERT},
    rules=(*QWEN35.rules, *expert_rules(True), shared_width, rule.ignored("feed_forward_length")),
)
"""Files may say the width of an MLP, which these layers do not have."""

BY_NAME: Mapping[str, GgufArchitecture] = {
    "falcon-h1": FALCON_H1,
    "granitehybrid": GRANITEHYBRID,
    "jamba": JAMBA,
    "mamba": MAMBA,
    "mamba2": MAMBA2,
    "nemotron_h": NEMOTRON_H,
    "nemotron_h_moe": NEMOTRON_H_MOE,
    "qwen3next": QWEN3NEXT,
    "qwen35": QWEN35,
    "qwen35moe": QWEN35MOE,
}
