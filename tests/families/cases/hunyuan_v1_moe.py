"""Hunyuan A13B: Hunyuan with experts in every layer, and one more that every token uses.

Published: 80B with 13B active (83 GB in int8, 50 GB in int4).
"""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "hunyuan_v1_moe",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_hidden_layers": 2,
        "intermediate_size": 64,
        "num_experts": 6,
        "moe_topk": 3,
        "max_position_embeddings": CONTEXT,
        "pad_token_id": 1,
        "eod_token_id": 0,
    },
    {
        "experts per token by layer": {"moe_topk": [1, 3]},
        "one expert": {"num_experts": 1, "moe_topk": 1},
        "stretched base": {"rope_scaling": {"type": "dynamic", "alpha": 50.0, "factor": 1.0}},
        "attention bias": {"attention_bias": True},
        "tied": {"tie_word_embeddings": True},
        "heads of 24": {"head_dim": 24},
    },
    {
        "base": {"config_classes": (4, 5)},
    },
    oracles=(5,),
)
