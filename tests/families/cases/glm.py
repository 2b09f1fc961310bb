"""GLM-4: Llama that rotates adjacent pairs of half of each head, with biases on q, k and v.

Published: 9B (9.7 GB in int8, 5.8 GB in int4).
"""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "glm",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
        "head_dim": 16,
        "pad_token_id": 1,
        "rope_theta": 10000.0,
    },
    {
        "whole heads rotate": {"partial_rotary_factor": 1.0},
        "a quarter rotates": {"partial_rotary_factor": 0.25},
        "heads of 32": {"head_dim": 32},
        "no attention bias": {"attention_bias": False},
        "tied": {"tie_word_embeddings": True},
        "multi-head": {"num_key_value_heads": 4},
        "theta": {"rope_theta": 500.0},
        "linear scaling": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        "gelu": {"hidden_act": "gelu"},
        "epsilon": {"rms_norm_eps": 0.01},
    },
)
