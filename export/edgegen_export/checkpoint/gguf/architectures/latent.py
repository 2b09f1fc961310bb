"""Latent attention: DeepSeek-V2 and V3 with all that has their architecture, and MiniCPM3."""

from collections.abc import Mapping
from dataclasses import replace

from edgegen_export.checkpoint.gguf import config_rules as rule
from edgegen_export.checkpoint.gguf.architecture import PREFIX, GgufArchitecture, Modules, gated
from edgegen_export.checkpoint.gguf.architectures.experts import softmax
from edgegen_export.checkpoint.gguf.architectures.experts_behind_dense import (
    DEEPSEEK_EXPERTS,
    NEXTN,
    as_deepseek,
    counts_behind_dense,
    routing,
    weights_scale,
)
from edgegen_export.checkpoint.gguf.architectures.llama_like import GATED_MLP, LLAMA, NORMS
from edgegen_export.checkpoint.gguf.config_rules import Entries
from edgegen_export.checkpoint.gguf.layouts import Joined, PerLatentHead
from edgegen_export.checkpoint.gguf.metadata_reader import MetadataReader

LATENT: Modules = {
    "attn_q": "self_attn.q_proj",
    "attn_q_a": "self_attn.q_a_proj",
    "attn_q_a_norm": "self_attn.q_a_layernorm",
    "attn_q_b": "self_attn.q_b_proj",
    "attn_kv_a_mqa": "self_attn.kv_a_proj_with_mqa",
    "attn_kv_a_norm": "self_attn.kv_a_layernorm",
    "attn_kv_b": "self_attn.kv_b_proj",
    "attn_k_b": "self_attn.k_b_proj",
    "attn_v_b": "self_attn.v_b_proj",
    "attn_output": "self_attn.o_proj",
}
_EXPERT = f"{PREFIX}mlp.experts"


def per_head(attention: str) -> PerLatentHead:
    """Key and value matrices, in one tensor in older files; ``attention``: the original's name of the module."""
    module = f"{PREFIX}{attention}"
    return PerLatentHead((f"{module}.k_b_proj.weight", f"{module}.v_b_proj.weight"), f"{module}.kv_b_proj.weight")


_SPLIT = per_head("self_attn")


def latent_sizes(read: MetadataReader) -> Entries:
    """Of a latent and of heads. Newer files say as those of keys and values what the KV cache has, and those of heads
    apart."""
    read.own_values = True
    read.ignore("attention.head_count_kv", "attention.key_length", "attention.value_length")
    rotated = read.integer("rope.dimension_count")
    key = read.integer("attention.key_length_mla", 0, least=0) or read.integer("attention.key_length")
    if key <= rotated:
        read.problems.append(f"rope.dimension_count = {rotated}: a head of {key} has no part that is not rotated")
    return {
        "kv_lora_rank": read.integer("attention.kv_lora_rank"),
        "q_lora_rank": read.integer("attention.q_lora_rank", 0, least=0) or None,
        "qk_rope_head_dim": rotated,
        "qk_nope_head_dim": max(1, key - rotated),
        "v_head_dim": _value(read),
        "rope_theta": read.real("rope.freq_base", 10000.0),
    }


def _value(read: MetadataReader) -> int:
    """The size of a head's value; files of MiniCPM3 do not say it."""
    given = read.integer("attention.value_length_mla", 0, least=0) or read.integer("attention.value_length", 0, least=0)
    return given or max(1, read.hidden_size // read.integer("attention.head_count"))


def _deepseek_rope(read: MetadataReader) -> Entries:
    """YaRN as DeepSeek has it: it sharpens scores by a factor of its own, and nothing else grows."""
    found = rule.rope_scaling(read)
    sharpening = round(10 * read.real("rope.scaling.yarn_log_multiplier", 0.0), 6)
    scaling = found.get("rope_scaling")
    if scaling and scaling.get("rope_type") == "yarn":
        both = {"mscale": sharpening, "mscale_all_dim": sharpening}
        return {"rope_scaling": scaling | (both if sharpening else {"attention_factor": 1.0})}
    return found


def _experts(read: MetadataReader) -> Entries:
    """DeepSeek-V3 where sigmoids weigh experts, V2 where a softmax does, and Youtu where there are none."""
    dense = read.integer("leading_dense_block_count", 0, least=0)
    if not read.integer("expert_count", 0, least=0):
        read.ignore("expert_feed_forward_length", "expert_shared_count", "expert_weights_scale", "expert_weights_norm")
        read.ignore("expert_gating_func", "expert_used_count")
        return {"model_type": "youtu"}
    if read.value("expert_gating_func") == 2 or read.has("blk.{i}.exp_probs_b.bias", dense):
        entries: Entries = {"model_type": "deepseek_v3"}
        for one in as_deepseek("n_routed_experts", "n_shared_experts"):
            entries |= one(read)
        return entries
    read.refuse("expert_gating_func", (0, 1), "experts are weighed by sigmoids or a softmax in this architecture")
    read.refuse("expert_weights_norm", (False,), "weights of a softmax are not normalized in this architecture")
    groups = read.integer("expert_group_count", 0, least=0) or 1
    chosen = read.integer("expert_group_used_count", 0, least=0) or 1
    grouped = {"topk_method": "group_limited_greedy", "n_group": groups, "topk_group": chosen} if groups > 1 else {}
    return {
        **counts_behind_dense("n_routed_experts", "n_shared_experts", "first_k_dense_replace")(read),
        **grouped,
        "routed_scaling_factor": weights_scale(read),
    }


DEEPSEEK2 = replace(
    LLAMA,
    model_type="deepseek_v2",
    layer={**NORMS, **LATENT, **DEEPSEEK_EXPERTS},
    rules=(latent_sizes, _deepseek_rope, rule.bias("attention_bias", "attn_kv_a_mqa"), _experts, rule.without_drafts),
    joined=(_SPLIT,),
    draft=NEXTN,
)
"""GLM-4.7-Flash, Kimi K2 and Youtu have it, too."""


def _mistral4(read: MetadataReader) -> Entries:
    """Experts weighed by a softmax, and queries that grow with their position."""
    found = _deepseek_rope(read)
    scaling = {"rope_type": "default", **found.get("rope_scaling", {})}
    theta, beta = read.real("rope.freq_base", 10000.0), read.real("attention.temperature_scale", 0.0)
    return {"rope_parameters": {**scaling, "rope_theta": theta, "llama_4_scaling_beta": beta}, **routing(read)}


def _mistral4_sizes(read: MetadataReader) -> Entries:
    """Return the sizes of a latent; the rotation stands with its scaling."""
    return {key: value for key, value in latent_sizes(read).items() if key != "rope_theta"}


MISTRAL4 = replace(
    DEEPSEEK2,
    draft=None,
    model_type="mistral4",
    layer={
        **NORMS,
        **LATENT,
        **{name: module for name, module in DEEPSEEK_EXPERTS.items() if name != "exp_probs_b"},
        **gated("mlp.experts", kind="_exps"),
        "ffn_gate_up_exps": "mlp.experts.gate_up_proj",
    },
    rules=(
        _mistral4_sizes,
        rule.bias("attention_bias", "attn_kv_a_mqa"),
        counts_behind_dense("n_routed_experts", "n_shared_experts", "first_k_dense_replace"),
        softmax,
        _mistral4,
    ),
    joined=(
        _SPLIT,
        *(
            Joined(tuple(f"{_EXPERT}.{part}_proj.weight" for part in parts), f"{_EXPERT}.{whole}_proj")
            for parts, whole in ((("gate_up",), "gate_up"), (("gate", "up"), "gate_up"), (("down",), "down"))
        ),
    ),
)
"""Files may have the gates of experts apart from what they are multiplied by."""


MINICPM3 = replace(
    LLAMA,
    model_type="minicpm3",
    layer={**NORMS, **LATENT, **GATED_MLP},
    rules=(
        latent_sizes,
        rule.rope_scaling,
        rule.bias("attention_bias", "attn_kv_a_mqa"),
        rule.bias("mlp_bias", "ffn_up"),
    ),
    constants={"scale_emb": 12.0, "scale_depth": 1.4, "dim_model_base": 256},  # which files do not say
    joined=(_SPLIT,),
)

BY_NAME: Mapping[str, GgufArchitecture] = {
    "deepseek2": DEEPSEEK2,
    "minicpm3": MINICPM3,
    "mistral4": MISTRAL4,
}
