"""MiniMax M2: Llama that rotates a part of each head, with norms over the whole width of q and k, and experts that
sigmoids weigh and that are chosen with a bias of each.

Published: 229B with 10B active (236 GB in int8, 143 GB in int4).
"""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "minimax_m2",
    {
        "hidden_size": 64,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_hidden_layers": 2,
        "intermediate_size": 48,
        "num_local_experts": 8,
        "num_experts_per_tok": 3,
        "rotary_dim": 8,
        "max_position_embeddings": CONTEXT,
        "pad_token_id": 1,
    },
    {
        "whole heads rotate": {"rotary_dim": 16},
        "partial factor": {
            "rotary_dim": None,
            "rope_parameters": {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.75},
        },
        "one expert per token": {"num_experts_per_tok": 1},
        "many experts": {"num_local_experts": 24, "num_experts_per_tok": 5},
        "tied": {"tie_word_embeddings": True},
        "multi-head": {"num_key_value_heads": 6},
    },
    oracles=(5,),
)
