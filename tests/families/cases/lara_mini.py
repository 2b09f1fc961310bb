"""Lara Mini: gated delta nets, sliding windows that rotate and full attention that does not, with experts in every
layer and one more that every token uses.

Published: 7B with 0.5B active (7.7 GB in int8, 4.7 GB in int4).
"""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "lara_mini",
    {
        "hidden_size": 64,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_hidden_layers": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 48,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "sliding_window": 7,
        "max_position_embeddings": CONTEXT,
    },
    {
        "weights that need not add up": {"norm_topk_prob": False},
        "listed layers": {
            "layer_types": ["sliding_attention", "linear_attention", "sliding_attention", "full_attention"]
        },
        "one key head": {"linear_num_key_heads": 1},
        "untied": {"tie_word_embeddings": False},
        "attention bias": {"attention_bias": True},
    },
    {
        "base": {"off_device": "it has fixed states"},
    },
    oracles=(5,),
)
