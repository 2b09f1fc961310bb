"""Mixtures of experts: matrices of experts on an axis, one tensor for all of gate, up and down each."""

from collections.abc import Mapping
from dataclasses import replace

from edgegen_export.checkpoint.gguf import config_rules as rule
from edgegen_export.checkpoint.gguf.architecture import LAYER_NORM_EPS, PREFIX, GgufArchitecture, Modules
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

_SOFTMAX = (0, 1)
"""How experts are weighed, where files say it: by softmax; 0 is nothing said."""


def expert_counts(count: str, *, width: str | None = None) -> Rule:
    """How many experts there are, under the class's key ``count``, and are used; ``width``: its key for their width."""

    def rule(read: MetadataReader) -> Entries:
        read.refuse("expert_weights_scale", (0.0, 1.0), "experts are not scaled in this architecture")
        entries = {count: read.integer("expert_count"), "num_experts_per_tok": read.integer("expert_used_count")}
        widths = {width: read.integer("expert_feed_forward_length")} if width else {}
        if not width:
            said = read.integer("expert_feed_forward_length", read.integer("feed_forward_length"))
            read.refuse("feed_forward_length", (said,), f"experts are {said} wide")
        return entries | widths

    return rule


def softmax(read: MetadataReader) -> Entries:
    read.refuse("expert_gating_func", _SOFTMAX, "experts are weighed by softmax only in this architecture")
    return {}


def _normalized(default: bool) -> Rule:
    """Whether the weights of the chosen experts sum to one."""
    return lambda read: {"norm_topk_prob": read.flag("expert_weights_norm", default)}


def expert_rules(normalized: bool) -> tuple[Rule, ...]:
    """Experts as Qwen has them; whether their weights sum to one where the file does not say."""
    return expert_counts("num_experts", width="moe_intermediate_size"), softmax, _normalized(normalized)


def shared_width(read: MetadataReader) -> Entries:
    return {"shared_expert_intermediate_size": read.integer("expert_shared_feed_forward_length")}


QWEN_EXPERTS: Modules = {
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": Each("mlp.experts.{n}.gate_proj"),
    "ffn_up_exps": Each("mlp.experts.{n}.up_proj"),
    "ffn_down_exps": Each("mlp.experts.{n}.down_proj"),
}
SHARED_EXPERT: Modules = {
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
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
    rules=(*QWEN2.rules, expert_counts("num_experts"), softmax, _normalized(False)),
)
MIXTRAL_EXPERTS: Modules = {
    "ffn_gate_inp": "block_sparse_moe.gate",
    "ffn_gate_exps": Each("block_sparse_moe.experts.{n}.w1"),
    "ffn_up_exps": Each("block_sparse_moe.experts.{n}.w3"),
    "ffn_down_exps": Each("block_sparse_moe.experts.{n}.w2"),
}
MIXTRAL = replace(
    LLAMA,
    model_type="mixtral",
    layer={**NORMS, **ATTENTION, **PAIRED, **MIXTRAL_EXPERTS},
    rules=(rule.grouped_heads, rule.head_dim_if_own, rule.full_rotary, expert_counts("num_local_experts"), softmax),
)


def _dbrx(read: MetadataReader) -> Entries:
    """Return the entries of ``attn_config`` and ``ffn_config``, which are inside the config."""
    read.refuse("expert_weights_scale", (0.0, 1.0), "experts are not scaled in this architecture")
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
    rules=(softmax, _dbrx),
)
LLAMA_OR_MIXTRAL = replace(LLAMA, variant=("blk.{i}.ffn_gate_inp.weight", MIXTRAL))


def _shared_mlp(read: MetadataReader) -> Entries:
    """A width of the expert that every token uses, which makes another class of the model."""
    width = read.integer("expert_shared_feed_forward_length", 0, least=0)
    if not width:
        return {}
    entries = {"intermediate_size": read.integer("feed_forward_length"), "shared_intermediate_size": width}
    classes = {"model_type": "granitemoeshared"}
    return classes | entries


_MOE = f"{PREFIX}block_sparse_moe."
GRANITEMOE = replace(
    GRANITE,
    model_type="granitemoe",
    layer={
        **NORMS,
        **ATTENTION,
        **PAIRED,
        "ffn_gate_inp": "block_sparse_moe.router.layer",
        "ffn_gate_exps": "block_sparse_moe.gate",
        "ffn_up_exps": "block_sparse_moe.up",
        "ffn_down_exps": "block_sparse_moe.output_linear",
        "ffn_gate_shexp": "shared_mlp.gate",
        "ffn_up_shexp": "shared_mlp.up",
        "ffn_down_shexp": "shared_mlp.output_linear",
    },
    joined=(
        Joined((f"{_MOE}gate.weight", f"{_MOE}up.weight"), f"{_MOE}input_linear.weight"),
        Joined(
            (f"{PREFIX}shared_mlp.gate.weight", f"{PREFIX}shared_mlp.up.weight"),
            f"{PREFIX}shared_mlp.input_linear.weight",
        ),
    ),
    rules=(*GRANITE.rules, _shared_mlp, expert_counts("num_local_experts"), softmax),
)


def _gpt_oss_window(read: MetadataReader) -> Entries:
    """A window in every second layer, from the first on."""
    return {"sliding_window": read.integer("attention.sliding_window")}


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
        _gpt_oss_window,
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
