"""Mixtures of experts of 2025: dense layers before those with experts, a bias of each in their choice, shared ones."""

from dataclasses import replace

from edgegen_export.checkpoint.gguf import config_rules as rule
from edgegen_export.checkpoint.gguf.architecture import Modules, modules
from edgegen_export.checkpoint.gguf.architectures.experts import QWEN_EXPERTS
from edgegen_export.checkpoint.gguf.architectures.llama_like import (
    ATTENTION,
    GATED_MLP,
    LLAMA,
    PREFIX,
    QK_NORMS,
    TOP,
)
from edgegen_export.checkpoint.gguf.config_rules import Entries, Rule
from edgegen_export.checkpoint.gguf.layouts import Parameter
from edgegen_export.checkpoint.gguf.metadata_reader import MetadataReader

_SIGMOID = (0, 2)
"""How experts are weighed, where files say it: by sigmoids; 0 is nothing said."""


def _sigmoid(read: MetadataReader) -> Entries:
    read.refuse("expert_gating_func", _SIGMOID, "experts are weighed by sigmoids only in this architecture")
    return {}


def _counts(count: str, shared: str, dense: str) -> Rule:
    """How many experts there are, are used and are shared, and how many layers have none, under the class's keys."""

    def rule(read: MetadataReader) -> Entries:
        width, together = read.integer("expert_feed_forward_length"), read.integer("expert_shared_count", 0, least=0)
        widths = (0, width, width * together)  # some converters say the width of one, others that of all
        read.refuse("expert_shared_feed_forward_length", widths, f"shared experts are {width} wide, as the others are")
        return {
            count: read.integer("expert_count"),
            "num_experts_per_tok": read.integer("expert_used_count"),
            "moe_intermediate_size": width,
            shared: together,
            dense: read.integer("leading_dense_block_count", 0, least=0),
        }

    return rule


def _scale(read: MetadataReader) -> float:
    return read.real("expert_weights_scale", 0.0) or 1.0  # 0 is nothing said


def _as_deepseek(count: str, shared: str) -> tuple[Rule, ...]:
    """Experts routed as in DeepSeek-V3, behind layers that have none."""

    def routing(read: MetadataReader) -> Entries:
        groups = read.integer("expert_group_count", 0, least=0) or 1
        chosen = read.integer("expert_group_used_count", 0 if groups == 1 else None, least=0)
        return {
            "n_group": groups,
            "topk_group": 1 if groups == 1 else max(1, chosen),
            "norm_topk_prob": read.flag("expert_weights_norm", False),
            "routed_scaling_factor": _scale(read),
        }

    return _counts(count, shared, "first_k_dense_replace"), _sigmoid, routing


def _without_drafts(read: MetadataReader) -> Entries:
    """The layers that count: the file's last ones may propose further tokens."""
    drafts = read.integer("nextn_predict_layers", 0, least=0)
    return {"num_hidden_layers": max(1, read.layers - drafts)}


def _qk_norm(read: MetadataReader) -> Entries:
    return {"use_qk_norm": read.has("blk.{i}.attn_q_norm.weight")}


_SHARED_EXPERTS: Modules = {
    "ffn_gate_shexp": "mlp.shared_experts.gate_proj",
    "ffn_up_shexp": "mlp.shared_experts.up_proj",
    "ffn_down_shexp": "mlp.shared_experts.down_proj",
}
_EXPERTS: Modules = {**GATED_MLP, **QWEN_EXPERTS, **_SHARED_EXPERTS}
_DEEPSEEK: Modules = {**_EXPERTS, "exp_probs_b": Parameter("mlp.gate.e_score_correction")}

GLM4MOE = replace(
    LLAMA,
    model_type="glm4_moe",
    hf_class="Glm4MoeForCausalLM",
    modules=modules(
        TOP,
        {
            "attn_norm": "input_layernorm",
            **ATTENTION,
            **QK_NORMS,
            "post_attention_norm": "post_attention_layernorm",
            **_DEEPSEEK,
        },
        PREFIX,
    ),
    rules=(
        rule.grouped_heads,
        rule.head_dim,
        rule.partial_rotary("partial_rotary_factor"),
        rule.bias("attention_bias", "attn_q"),
        rule.text_only,
        *_as_deepseek("n_routed_experts", "n_shared_experts"),
        _qk_norm,
        _without_drafts,
    ),
)
"""GLM-4.5 to 4.7; and Solar Open, which is one whose heads rotate whole."""
