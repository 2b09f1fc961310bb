"""Solar Open: Llama with experts in every layer, routed as in DeepSeek-V3, and shared ones.

Published: 102B with 12B active (106 GB in int8, 64 GB in int4).
"""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "solar_open",
    {
        "hidden_size": 64,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
        "head_dim": 16,
        "num_hidden_layers": 2,
        "moe_intermediate_size": 32,
        "n_routed_experts": 8,
        "num_experts_per_tok": 3,
        "routed_scaling_factor": 2.5,
        "max_position_embeddings": CONTEXT,
    },
    {
        "groups": {"n_group": 4, "topk_group": 2},
        "weights that need not add up": {"norm_topk_prob": False, "routed_scaling_factor": 0.5},
        "attention bias": {"attention_bias": True},
        "two shared experts": {"n_shared_experts": 2},
        "yarn": {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 2.0,
                "original_max_position_embeddings": 48,
            }
        },
    },
    oracles=(5,),
)
