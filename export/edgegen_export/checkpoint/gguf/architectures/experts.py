"""Mixtures of experts, whose matrices a file has behind each other in one tensor for each layer."""

from dataclasses import replace

from edgegen_export.checkpoint.gguf import config_rules as rule
from edgegen_export.checkpoint.gguf.architecture import SIZES, Modules, modules
from edgegen_export.checkpoint.gguf.architectures.llama_like import ATTENTION, LLAMA, NORMS, PREFIX, QK_NORMS, TOP
from edgegen_export.checkpoint.gguf.config_rules import Entries
from edgegen_export.checkpoint.gguf.layouts import Each, OneRow, RotaryPairs
from edgegen_export.checkpoint.gguf.metadata_reader import MetadataReader

_COUNTS = {"expert_count": "num_experts", "expert_used_count": "num_experts_per_tok"}
_WIDTH = {"expert_feed_forward_length": "moe_intermediate_size"}
_HEADS = (rule.grouped_heads, rule.full_rotary)


def _experts(module: str, gate: str, up: str, down: str) -> Modules:
    return {
        "ffn_gate_inp": f"{module}.gate",
        "ffn_gate_exps": Each(f"{module}.experts.{{n}}.{gate}"),
        "ffn_up_exps": Each(f"{module}.experts.{{n}}.{up}"),
        "ffn_down_exps": Each(f"{module}.experts.{{n}}.{down}"),
    }


_MLP_EXPERTS = _experts("mlp", "gate_proj", "up_proj", "down_proj")


def _normalized(used: bool) -> rule.Rule:
    """Whether the weights of the chosen experts are divided by their sum, which llama.cpp does by the architecture."""

    def found(read: MetadataReader) -> Entries:
        read.refuse("expert_weights_norm", (used,), f"this architecture always has {used}")
        read.refuse("expert_weights_scale", (0.0, 1.0), "weights of experts that are scaled are not supported")
        return {"norm_topk_prob": used}

    return found


def _shared_width(read: MetadataReader) -> Entries:
    """That of the expert which every token uses; old files leave it out."""
    width = read.integer("expert_shared_feed_forward_length", 0, least=0)
    return {"shared_expert_intermediate_size": width or read.integer("feed_forward_length")}


QWEN2MOE = replace(
    LLAMA,
    model_type="qwen2_moe",
    hf_class="Qwen2MoeForCausalLM",
    integers={**SIZES, **_COUNTS, **_WIDTH},
    modules=modules(
        TOP,
        {
            **NORMS,
            **ATTENTION,
            **_MLP_EXPERTS,
            **{f"ffn_{x}_shexp": f"mlp.shared_expert.{x}_proj" for x in ("gate", "up", "down")},
            "ffn_gate_inp_shexp": OneRow("mlp.shared_expert_gate"),
        },
        PREFIX,
    ),
    rules=(*_HEADS, _shared_width, _normalized(False)),
)
QWEN3MOE = replace(
    LLAMA,
    model_type="qwen3_moe",
    hf_class="Qwen3MoeForCausalLM",
    integers={**SIZES, **_COUNTS, **_WIDTH},
    modules=modules(TOP, {**NORMS, **ATTENTION, **QK_NORMS, **_MLP_EXPERTS}, PREFIX),
    rules=(
        rule.grouped_heads,
        rule.head_dim,
        rule.full_rotary,
        rule.bias("attention_bias", "attn_q"),
        _normalized(True),
    ),
)
OLMOE = replace(
    LLAMA,
    model_type="olmoe",
    hf_class="OlmoeForCausalLM",
    integers={**SIZES, **_COUNTS},
    modules=modules(TOP, {**NORMS, **ATTENTION, **QK_NORMS, **_MLP_EXPERTS}, PREFIX),
    rules=(*_HEADS, rule.bias("attention_bias", "attn_q"), _normalized(False)),
)


def _no_window(read: MetadataReader) -> Entries:
    return {"sliding_window": None}


MIXTRAL = replace(
    LLAMA,
    model_type="mixtral",
    hf_class="MixtralForCausalLM",
    integers={**SIZES, "expert_count": "num_local_experts", "expert_used_count": "num_experts_per_tok"},
    modules=modules(
        TOP,
        {
            **NORMS,
            **ATTENTION,
            "attn_q": RotaryPairs("self_attn.q_proj"),
            "attn_k": RotaryPairs("self_attn.k_proj"),
            **_experts("block_sparse_moe", "w1", "w3", "w2"),
        },
        PREFIX,
    ),
    rules=(rule.grouped_heads, rule.head_dim_if_own, rule.full_rotary, _no_window),
)
LLAMA_OR_MIXTRAL = replace(LLAMA, variant=("blk.{i}.ffn_gate_exps.weight", MIXTRAL))
"""Mixtral's files say that they are Llama's."""
