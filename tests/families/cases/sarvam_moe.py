"""Sarvam: the layers of Ling 2.0 (`bailing_moe`), whose names of tensors it has.

Published: 30B with 2.4B active (33 GB in int8, 20 GB in int4). Ling and Ring 2.0: 16B with 1.4B active (17 GB in int8,
10 GB in int4), 103B with 6B active.
"""

from tests.families.cases.case import CONTEXT, variants

LING = {
    "num_experts": 12,
    "num_shared_experts": 1,
    "moe_shared_expert_intermediate_size": 32,
    "num_nextn_predict_layers": 1,
    "score_function": "sigmoid",
    "moe_router_enable_expert_bias": True,
    "router_dtype": "fp32",
    "norm_head": False,
}
"""Ling 2.0's keys, which Sarvam's class does not write."""

CASES = variants(
    "sarvam_moe",
    {
        "hidden_size": 64,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_hidden_layers": 3,
        "intermediate_size": 80,
        "moe_intermediate_size": 32,
        "n_routed_experts": 12,
        "num_experts_per_tok": 3,
        "first_k_dense_replace": 1,
        "n_group": 4,
        "topk_group": 2,
        "max_position_embeddings": CONTEXT,
    },
    {
        "half of each head rotates": {"partial_rotary_factor": 0.5},
        "no groups": {"n_group": 1, "topk_group": 1},
        "weights that need not add up": {"norm_topk_prob": False, "routed_scaling_factor": 0.5},
        "no norm of q and k": {"use_qk_norm": False},
        "attention bias": {"attention_bias": True},
        "tied": {"tie_word_embeddings": True},
    },
    oracles=(5,),
)
