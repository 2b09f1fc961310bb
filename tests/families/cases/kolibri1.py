"""Kolibri 1: a norm before and after each sublayer, no rotation where attention is full, and experts in every layer,
chosen by their logits with a bias of each and weighed by sigmoids, with a shared one.

Published: 78B with 3B active (81 GB in int8, 49 GB in int4).
"""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "kolibri1",
    {
        "hidden_size": 64,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
        "head_dim": 16,
        "num_hidden_layers": 5,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 48,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "sliding_window": 7,
        "max_position_embeddings": CONTEXT,
        "pad_token_id": 1,
    },
    {
        "weights that add up": {"norm_topk_prob": True},
        "listed windows": {"layer_types": ["full_attention", "sliding_attention"] * 2 + ["sliding_attention"]},
        "one expert of many": {"num_experts": 16, "num_experts_per_tok": 1},
        "another base": {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
        "tied": {"tie_word_embeddings": True},
    },
    oracles=(5,),
)
