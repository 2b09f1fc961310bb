"""Mixtures of experts of 2025: dense layers before those with experts, a bias of each in their choice, shared ones."""

from collections.abc import Mapping
from dataclasses import replace

from edgegen_export.checkpoint.gguf import config_rules as rule
from edgegen_export.checkpoint.gguf.architecture import TOP, DraftLayer, GgufArchitecture, Modules, gated, of_layer
from edgegen_export.checkpoint.gguf.architectures.experts import (
    MIXTRAL_EXPERTS,
    QWEN_EXPERTS,
    expert_counts,
    normalized,
    softmax,
    unscaled,
)
from edgegen_export.checkpoint.gguf.architectures.llama_like import (
    ATTENTION,
    GATED_MLP,
    LATE_NORMS,
    LLAMA,
    NORMS,
    PAIRED,
    QK_NORMS,
    QWEN3,
)
from edgegen_export.checkpoint.gguf.architectures.llama_variants import ERNIE4_5, HUNYUAN_DENSE
from edgegen_export.checkpoint.gguf.config_rules import Entries, Rule
from edgegen_export.checkpoint.gguf.layouts import Parameter
from edgegen_export.checkpoint.gguf.metadata_reader import MetadataReader

_SIGMOID = rule.weighed_by_sigmoids(0, 2)
"""Where files say how experts are weighed: 0 is nothing said."""


def counts_behind_dense(count: str, shared: str, dense: str) -> Rule:
    """How many experts there are, are used and are shared, and how many layers have none, under the class's keys."""

    def rule(read: MetadataReader) -> Entries:
        width, together = read.integer("expert_feed_forward_length"), read.integer("expert_shared_count", 0, least=0)
        widths = (0, width, width * together)  # some converters write the width of one, others the width of all
        read.refuse("expert_shared_feed_forward_length", widths, f"shared experts are {width} wide, as the others are")
        return {
            count: read.integer("expert_count"),
            "num_experts_per_tok": read.integer("expert_used_count"),
            "moe_intermediate_size": width,
            shared: together,
            dense: read.integer("leading_dense_block_count", 0, least=0),
        }

    return rule


def weights_scale(read: MetadataReader) -> float:
    return read.real("expert_weights_scale", 0.0) or 1.0  # 0 is nothing said


def routing(read: MetadataReader) -> Entries:
    """Groups that experts are chosen from, and how they are weighed."""
    groups = read.integer("expert_group_count", 0, least=0) or 1
    read.ignore("expert_group_used_count")  # of one group
    return {
        "n_group": groups,
        "topk_group": read.integer("expert_group_used_count") if groups > 1 else 1,
        "norm_topk_prob": read.flag("expert_weights_norm", False),
        "routed_scaling_factor": weights_scale(read),
    }


def as_deepseek(count: str, shared: str) -> tuple[Rule, ...]:
    """Experts routed as in DeepSeek-V3, after layers that have none."""

    return counts_behind_dense(count, shared, "first_k_dense_replace"), _SIGMOID, routing


_NEXTN: Modules = {"nextn.eh_proj": "eh_proj", "nextn.enorm": "enorm", "nextn.hnorm": "hnorm"}
NEXTN = DraftLayer(
    of_layer(
        {
            **_NEXTN,
            "nextn.shared_head_norm": "shared_head.norm",
            "nextn.embed_tokens": "embed_tokens",
            "nextn.shared_head_head": "shared_head.head",
        }
    )
)
"""The head of DeepSeek-V3 and GLM-4.5."""


_EXPERTS: Modules = {**GATED_MLP, **QWEN_EXPERTS, **gated("mlp.shared_experts", kind="_shexp")}
DEEPSEEK_EXPERTS: Modules = {**_EXPERTS, "exp_probs_b": Parameter("mlp.gate.e_score_correction")}


DEEPSEEK = replace(
    LLAMA,
    model_type="deepseek",
    layer={**NORMS, **ATTENTION, **PAIRED, **_EXPERTS},
    rules=(
        *LLAMA.rules,
        counts_behind_dense("n_routed_experts", "n_shared_experts", "first_k_dense_replace"),
        softmax,
        unscaled,
        normalized(False),
    ),
)
"""DeepSeekMoE, and Ling of the first generation, whose queries, keys and values the converter takes apart."""

GLM4MOE = replace(
    LLAMA,
    model_type="glm4_moe",
    layer={**LATE_NORMS, **ATTENTION, **QK_NORMS, **DEEPSEEK_EXPERTS},
    rules=(
        *rule.PARTS_OF_HEADS,
        rule.bias("attention_bias", "attn_q"),
        rule.text_only,
        *as_deepseek("n_routed_experts", "n_shared_experts"),
        rule.has("use_qk_norm", "attn_q_norm.weight"),
        rule.without_drafts,
    ),
    draft=NEXTN,
)
"""GLM-4.5 to 4.7; and Solar Open, which is one whose heads rotate whole."""


DOTS1 = replace(
    QWEN3,
    model_type="dots1",
    layer={**NORMS, **ATTENTION, **QK_NORMS, **DEEPSEEK_EXPERTS},
    rules=(*QWEN3.rules, *as_deepseek("n_routed_experts", "n_shared_experts")),
    constants={"sliding_window": None},  # the class has one in late layers by default, which llama.cpp does not know
)

BAILINGMOE2 = replace(
    LLAMA,
    model_type="bailing_moe",
    layer={
        **NORMS,
        "attn_qkv": "attention.query_key_value",
        "attn_output": "attention.dense",
        "attn_q_norm": "attention.query_layernorm",
        "attn_k_norm": "attention.key_layernorm",
        **_EXPERTS,
        "exp_probs_b": Parameter("mlp.gate.expert"),
    },
    top={**TOP, "token_embd": "model.word_embeddings"},
    rules=(
        *rule.PARTS_OF_HEADS,
        rule.bias("attention_bias", "attn_qkv"),
        *as_deepseek("num_experts", "num_shared_experts"),
        rule.has("use_qk_norm", "attn_q_norm.weight"),
        rule.without_drafts,
    ),
    draft=DraftLayer(of_layer({**_NEXTN, "layer_output_norm": "final_layernorm"})),
)


EXAONE_MOE = replace(
    QWEN3,
    model_type="exaone_moe",
    layer={**NORMS, **ATTENTION, **QK_NORMS, **_EXPERTS, "exp_probs_b": Parameter("mlp.e_score_correction")},
    rules=(
        *rule.WHOLE_HEADS,
        *as_deepseek("num_experts", "num_shared_experts"),
        rule.sliding_layers(4, before_drafts=True),
        rule.without_drafts,
    ),
)


_ONE_GROUP: tuple[Rule, ...] = (
    rule.refused("expert_group_count", (0, 1), "experts are in one group in this architecture"),
    rule.ignored("expert_group_used_count"),
)


def _afmoe(read: MetadataReader) -> Entries:
    """Its embeddings are always multiplied in llama.cpp."""
    return {
        "mup_enabled": True,
        "route_norm": read.flag("expert_weights_norm", False),
        "route_scale": weights_scale(read),
    }


AFMOE = replace(
    LLAMA,
    model_type="afmoe",
    layer={
        **LATE_NORMS,
        **ATTENTION,
        **QK_NORMS,
        "attn_gate": "self_attn.gate_proj",
        "ffn_norm": "pre_mlp_layernorm",
        "post_ffw_norm": "post_mlp_layernorm",
        **_EXPERTS,
        "ffn_gate_inp": "mlp.router.gate",
        "exp_probs_b": Parameter("mlp.expert"),
    },
    rules=(
        *rule.WHOLE_HEADS,
        rule.sliding_layers(4),
        counts_behind_dense("num_experts", "num_shared_experts", "num_dense_layers"),
        _SIGMOID,
        *_ONE_GROUP,
        _afmoe,
    ),
)


always_normalized = rule.refused(
    "expert_weights_norm", (True,), "the weights of experts add up to one in this architecture"
)
MINIMAX_M2 = replace(
    LLAMA,
    model_type="minimax_m2",
    layer={
        **NORMS,
        **ATTENTION,
        **QK_NORMS,
        **MIXTRAL_EXPERTS,
        "exp_probs_b": Parameter("block_sparse_moe.e_score_correction"),
    },
    rules=(
        *rule.PARTS_OF_HEADS,
        expert_counts("num_local_experts"),
        _SIGMOID,
        *_ONE_GROUP,
        always_normalized,
    ),
)


def _hunyuan_moe(read: MetadataReader) -> Entries:
    """One expert is shared, as wide as the others."""
    width = read.integer("feed_forward_length")
    read.refuse("expert_shared_feed_forward_length", (0, width), f"experts are {width} wide, the shared one too")
    read.refuse("expert_shared_count", (1,), "one expert is shared in this architecture")
    return {}


HUNYUAN_MOE = replace(
    HUNYUAN_DENSE,
    model_type="hunyuan_v1_moe",
    layer={
        **HUNYUAN_DENSE.layer,
        **QWEN_EXPERTS,
        "ffn_gate_inp": "mlp.gate.wg",
        **gated("mlp.shared_mlp", kind="_shexp"),
    },
    rules=(*HUNYUAN_DENSE.rules, expert_counts("num_experts"), softmax, *_ONE_GROUP, always_normalized, _hunyuan_moe),
)


def _ernie_moe(read: MetadataReader) -> Entries:
    """Experts in every n-th layer; the converter makes up the width of the shared experts from other numbers."""
    read.ignore("expert_shared_feed_forward_length")
    return {
        **expert_counts("num_experts", width="moe_intermediate_size")(read),
        "moe_num_shared_experts": read.integer("expert_shared_count", 0, least=0),
        "moe_layer_start_index": read.integer("leading_dense_block_count", 0, least=0),
        "moe_layer_end_index": -1,
        "moe_layer_interval": read.integer("interleave_moe_layer_step", 1),
    }


ERNIE4_5_MOE = replace(
    ERNIE4_5,
    model_type="ernie4_5_moe",
    layer={
        **NORMS,
        **ATTENTION,
        **_EXPERTS,
        "exp_probs_b": Parameter("mlp.moe_statics.e_score_correction", row=True),
    },
    rules=(*ERNIE4_5.rules, softmax, *_ONE_GROUP, always_normalized, _ernie_moe),
)

BY_NAME: Mapping[str, GgufArchitecture] = {
    "afmoe": AFMOE,
    "bailingmoe": DEEPSEEK,
    "bailingmoe2": BAILINGMOE2,
    "deepseek": DEEPSEEK,
    "dots1": DOTS1,
    "ernie4_5-moe": ERNIE4_5_MOE,
    "exaone-moe": EXAONE_MOE,
    "glm4moe": GLM4MOE,
    "hunyuan-moe": HUNYUAN_MOE,
    "minimax-m2": MINIMAX_M2,
}
