"""dots.llm1: Qwen3 with experts behind the first layers, routed as in DeepSeek-V3, and shared ones.

Published: 142B with 14B active (147 GB in int8, 89 GB in int4).
"""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "dots1",
    {
        "hidden_size": 64,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "num_hidden_layers": 3,
        "intermediate_size": 80,
        "moe_intermediate_size": 32,
        "n_routed_experts": 8,
        "n_shared_experts": 2,
        "num_experts_per_tok": 2,
        "first_k_dense_replace": 1,
        "norm_topk_prob": True,
        "routed_scaling_factor": 2.5,
        "max_position_embeddings": CONTEXT,
    },
    {
        "groups": {"n_routed_experts": 9, "n_group": 3, "topk_group": 2},
        "weights that need not add up": {"norm_topk_prob": False, "routed_scaling_factor": 0.5},
        "windows": {"sliding_window": 7, "max_window_layers": 1},
        "listed windows": {
            "sliding_window": 7,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
        "attention bias": {"attention_bias": True},
        "tied": {"tie_word_embeddings": True},
    },
    {
        "base": {"no_defaults": "n_routed_experts: missing"},
    },
    oracles=(5,),
)
