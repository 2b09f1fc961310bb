"""Mellum 2: Qwen3 MoE whose layers with a window rotate in a way of their own.

Published: 12B with 2.5B active (13 GB in int8, 8 GB in int4).
"""

from tests.families.cases.case import CONTEXT, variants

_ROPE = {
    "full_attention": {"rope_type": "default", "rope_theta": 500.0},
    "sliding_attention": {"rope_type": "default", "rope_theta": 100.0},
}

CASES = variants(
    "mellum",
    {
        "hidden_size": 64,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_hidden_layers": 3,
        "intermediate_size": 80,
        "moe_intermediate_size": 32,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "sliding_window": 7,
        "layer_types": ["sliding_attention", "sliding_attention", "full_attention"],
        "rope_parameters": _ROPE,
        "max_position_embeddings": CONTEXT,
    },
    {
        "weights that need not add up": {"norm_topk_prob": False},
        "full attention everywhere": {"layer_types": ["full_attention"] * 3},
        "experts in one layer": {"mlp_layer_types": ["dense", "sparse", "dense"]},
        "yarn": {
            "rope_parameters": {
                **_ROPE,
                "full_attention": {
                    "rope_type": "yarn",
                    "rope_theta": 500.0,
                    "factor": 2.0,
                    "original_max_position_embeddings": 48,
                },
            }
        },
        "attention bias": {"attention_bias": True},
        "tied": {"tie_word_embeddings": True},
    },
    oracles=(5,),
)
