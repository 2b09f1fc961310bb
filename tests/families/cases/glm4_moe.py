"""GLM-4.5 to 4.7: Llama that rotates half of each head, with experts behind the first layers, routed as in DeepSeek-V3,
and shared ones.

Published: GLM-4.5-Air with 106B, 12B of them active (113 GB in int8, 68 GB in int4).
"""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "glm4_moe",
    {
        "hidden_size": 64,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_hidden_layers": 3,
        "intermediate_size": 80,
        "moe_intermediate_size": 32,
        "n_routed_experts": 8,
        "num_experts_per_tok": 3,
        "first_k_dense_replace": 1,
        "routed_scaling_factor": 2.5,
        "attention_bias": True,
        "max_position_embeddings": CONTEXT,
    },
    {
        "groups": {"n_routed_experts": 12, "n_group": 4, "topk_group": 2},
        "normalized q and k": {"use_qk_norm": True},
        "weights that need not add up": {"norm_topk_prob": False, "routed_scaling_factor": 0.5},
        "two shared experts": {"n_shared_experts": 2},
        "experts in every layer": {"first_k_dense_replace": 0},
        "no experts in any layer": {"first_k_dense_replace": 3},
        "whole heads rotate": {"partial_rotary_factor": 1.0},
        "no attention bias": {"attention_bias": False},
        "tied": {"tie_word_embeddings": True},
        "theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5}},
        "too few experts in groups": {"n_group": 4, "topk_group": 1},
    },
    {
        "base": {"no_defaults": "not a multiple of num_attention_heads"},
        "too few experts in groups": {"refused": "num_experts_per_tok = 3: topk_group = 1 groups do not have so many"},
    },
    oracles=(5,),
)
