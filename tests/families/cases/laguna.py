"""Laguna: Qwen3 with a softplus of a gate on attention, heads, windows and rotations by layer, and experts weighed by
sigmoids and chosen with a bias of each.

Published: XS.2 with 33B, 3B of them active (35 GB in int8, 21 GB in int4).
"""

from tests.families.cases.case import CONTEXT, variants

_ROPE = {
    "full_attention": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5},
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0, "partial_rotary_factor": 1.0},
}

CASES = variants(
    "laguna",
    {
        "hidden_size": 64,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_hidden_layers": 3,
        "intermediate_size": 80,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 48,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "moe_routed_scaling_factor": 2.5,
        "sliding_window": 7,
        "layer_types": ["full_attention", "sliding_attention", "full_attention"],
        "rope_parameters": _ROPE,
        "max_position_embeddings": CONTEXT,
    },
    {
        "gates of channels": {"gating": "per-element"},
        "heads by layer": {"num_attention_heads_per_layer": [2, 6, 4]},
        "capped logits of the router": {"moe_router_logit_softcapping": 1.5},
        "full attention everywhere": {"layer_types": ["full_attention"] * 3},
        "experts in one layer": {"mlp_layer_types": ["dense", "dense", "sparse"]},
        "attention bias": {"attention_bias": True},
        "tied": {"tie_word_embeddings": True},
    },
    oracles=(5,),
)
