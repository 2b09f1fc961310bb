"""Mixtures of experts: matrices of experts on an axis, one tensor for all of gate, up and down each."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from edgegen_export.checkpoint.gguf import config_rules as rule
from edgegen_export.checkpoint.gguf.architecture import (
    LAYER_NORM_EPS,
    NUMBERED,
    OF_MLP,
    PREFIX,
    GgufArchitecture,
    Modules,
    gated,
)
from edgegen_export.checkpoint.gguf.architectures.llama_like import (
    ATTENTION,
    GATED_MLP,
    GRANITE,
    LATE_NORMS,
    LLAMA,
    NORMS,
    PAIRED,
    QK_NORMS,
    QWEN2,
    QWEN3,
)
from edgegen_export.checkpoint.gguf.config_rules import Entries, Rule
from edgegen_export.checkpoint.gguf.layouts import Each, ExpertRows, Joined, Parameter, Unsqueezed
from edgegen_export.checkpoint.gguf.metadata_reader import MetadataReader

softmax = rule.refused("expert_gating_func", (0, 1), "experts are weighed by softmax only in this architecture")
"""Where files say how experts are weighed: 0 is nothing said."""
unscaled = rule.refused("expert_weights_scale", (0.0, 1.0), "experts are not scaled in this architecture")


def expert_counts(count: str, *, width: str | None = None) -> Rule:
    """How many experts there are, under the class's key ``count``, and are used; ``width``: its key for their width."""

    def rule(read: MetadataReader) -> Entries:
        unscaled(read)
        entries = {count: read.integer("expert_count"), "num_experts_per_tok": read.integer("expert_used_count")}
        if width:
            return entries | {width: read.integer("expert_feed_forward_length")}
        said = read.integer("expert_feed_forward_length", read.integer("feed_forward_length"))
        read.refuse("feed_forward_length", (said,), f"experts are {said} wide")
        return entries

    return rule


def normalized(default: bool) -> Rule:
    """Whether the weights of the chosen experts sum to one."""
    return lambda read: {"norm_topk_prob": read.flag("expert_weights_norm", default)}


def expert_rules(by_default: bool) -> tuple[Rule, ...]:
    """Experts as Qwen has them; whether their weights sum to one where the file does not say."""
    return expert_counts("num_experts", width="moe_intermediate_size"), softmax, normalized(by_default)


shared_width = rule.integer("shared_expert_intermediate_size", "expert_shared_feed_forward_length")


def each_expert(module: str, names: Sequence[str] = OF_MLP) -> Modules:
    """The MLPs of experts, which the original has one by one in ``module``."""
    return {ours: Each(theirs) for ours, theirs in gated(f"{module}.{{n}}", names, kind="_exps").items()}


QWEN_EXPERTS: Modules = {"ffn_gate_inp": "mlp.gate", **each_expert("mlp.experts")}
SHARED_EXPERT: Modules = {
    **gated("mlp.shared_expert", kind="_shexp"),
    "ffn_gate_inp_shexp": Unsqueezed("mlp.shared_expert_gate"),
}
QWEN2MOE = replace(
    QWEN2,
    model_type="qwen2_moe",
    layer={**NORMS, **ATTENTION, **QWEN_EXPERTS, **SHARED_EXPERT},
    rules=(*QWEN2.rules, *expert_rules(False), shared_width),
)
QWEN3MOE = replace(
    QWEN3,
    model_type="qwen3_moe",
    layer={**NORMS, **ATTENTION, **QK_NORMS, **QWEN_EXPERTS, **GATED_MLP},
    rules=(*QWEN3.rules, *expert_rules(True)),
)
OLMOE = replace(
    LLAMA,
    model_type="olmoe",
    layer={**NORMS, **ATTENTION, **QK_NORMS, **QWEN_EXPERTS},
    rules=(*QWEN2.rules, expert_counts("num_experts"), softmax, normalized(False)),
)
MIXTRAL_EXPERTS: Modules = {
    "ffn_gate_inp": "block_sparse_moe.gate",
    **each_expert("block_sparse_moe.experts", NUMBERED),
}
MIXTRAL = replace(
    LLAMA,
    model_type="mixtral",
    layer={**NORMS, **ATTENTION, **PAIRED, **MIXTRAL_EXPERTS},
    rules=(rule.grouped_heads, rule.head_dim_if_own, rule.full_rotary, expert_counts("num_local_experts"), softmax),
)


def _dbrx(read: MetadataReader) -> Entries:
    """Return the entries of ``attn_config`` and ``ffn_config``, which are inside the config."""
    read.refuse("rope.dimension_count", (read.heads.size,), "the whole head rotates in this architecture")
    read.refuse(LAYER_NORM_EPS, (1e-5,), "the norms of this architecture always have 1e-05")
    attention: Entries = {"kv_n_heads": read.heads.keys, "rope_theta": read.real("rope.freq_base", 10000.0)}
    if limit := read.real("attention.clamp_kqv", 0.0):
        attention["clip_qkv"] = limit
    experts = {
        "ffn_hidden_size": read.integer("feed_forward_length"),
        "moe_num_experts": read.integer("expert_count"),
        "moe_top_k": read.integer("expert_used_count"),
    }
    return {"attn_config": attention, "ffn_config": experts}


_DBRX = "norm_attn_norm."
DBRX = GgufArchitecture(
    model_type="dbrx",
    integers={
        "context_length": "max_seq_len",
        "embedding_length": "d_model",
        "block_count": "n_layers",
        "attention.head_count": "n_heads",
    },
    reals={},
    layer={
        "attn_norm": f"{_DBRX}norm_1",
        "attn_qkv": f"{_DBRX}attn.Wqkv",
        "attn_output": f"{_DBRX}attn.out_proj",
        "attn_output_norm": f"{_DBRX}norm_2",
        "ffn_gate_inp": "ffn.router.layer",
        "ffn_gate_exps": ExpertRows("ffn.experts.mlp.w1"),
        "ffn_up_exps": ExpertRows("ffn.experts.mlp.v1"),
        "ffn_down_exps": ExpertRows("ffn.experts.mlp.w2", transposed=True),
    },
    top={"token_embd": "transformer.wte", "output_norm": "transformer.norm_f", "output": "lm_head"},
    prefix="transformer.blocks.{i}.",
    rules=(softmax, unscaled, _dbrx),
)
LLAMA_OR_MIXTRAL = replace(LLAMA, variant=("blk.{i}.ffn_gate_inp.weight", MIXTRAL))


def _shared_mlp(read: MetadataReader) -> Entries:
    """A width of the expert that every token uses, which makes another class of the model."""
    width = read.integer("expert_shared_feed_forward_length", 0, least=0)
    if not width:
        return {}
    entries = {"intermediate_size": read.integer("feed_forward_length"), "shared_intermediate_size": width}
    return {"model_type": "granitemoeshared", **entries}


IN_TWO = ("gate", "up", "output_linear")
"""The matrices of an MLP, of which the original has the first two in one."""
GRANITEMOE = replace(
    GRANITE,
    model_type="granitemoe",
    layer={
        **NORMS,
        **ATTENTION,
        **PAIRED,
        "ffn_gate_inp": "block_sparse_moe.router.layer",
        **gated("block_sparse_moe", IN_TWO, kind="_exps"),
        **gated("shared_mlp", IN_TWO, kind="_shexp"),
    },
    joined=tuple(
        Joined((f"{PREFIX}{mlp}.gate.weight", f"{PREFIX}{mlp}.up.weight"), f"{PREFIX}{mlp}.input_linear.weight")
        for mlp in ("block_sparse_moe", "shared_mlp")
    ),
    rules=(*GRANITE.rules, _shared_mlp, expert_counts("num_local_experts"), softmax),
)


def _untruncated(read: MetadataReader) -> Entries:
    """YaRN as the published models have it, with the numbers that are usually not said."""
    scaling = {"beta_fast": 32.0, "beta_slow": 1.0} | rule.rope_scaling(read).get("rope_scaling", {})
    return {"rope_scaling": {**scaling, "truncate": False} if scaling.get("rope_type") == "yarn" else None}


_EXPERTS = f"{PREFIX}mlp.experts."
GPT_OSS = replace(
    LLAMA,
    model_type="gpt_oss",
    layer={
        **LATE_NORMS,
        **ATTENTION,
        "attn_sinks": Parameter("self_attn.sinks"),
        "ffn_gate_inp": "mlp.router",
        "ffn_gate_exps": "mlp.experts.gate",
        "ffn_up_exps": "mlp.experts.up",
        "ffn_down_exps": Parameter("mlp.experts.down_proj"),
    },
    joined=tuple(
        Joined((f"{_EXPERTS}gate.{kind}", f"{_EXPERTS}up.{kind}"), f"{_EXPERTS}{theirs}", in_turns=True)
        for kind, theirs in (("weight", "gate_up_proj"), ("bias", "gate_up_proj_bias"))
    ),
    rules=(
        *rule.WHOLE_HEADS,
        _untruncated,
        expert_counts("num_local_experts"),
        rule.integer("sliding_window", "attention.sliding_window"),  # in every second layer, from the first on
    ),
)

BY_NAME: Mapping[str, GgufArchitecture] = {
    "dbrx": DBRX,
    "gpt-oss": GPT_OSS,
    "granitemoe": GRANITEMOE,
    "llama": LLAMA_OR_MIXTRAL,
    "olmoe": OLMOE,
    "qwen2moe": QWEN2MOE,
    "qwen3moe": QWEN3MOE,
}
