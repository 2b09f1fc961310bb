"""Seed-OSS: Llama with biases on q, k and v.

Published: 36B (37 GB in int8, 22 GB in int4).
"""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "seed_oss",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
        "head_dim": 16,
        "rope_theta": 10000.0,
    },
    {
        "no attention bias": {"attention_bias": False},
        "bias of the output": {"attention_out_bias": True},
        "mlp bias": {"mlp_bias": True},
        "tied": {"tie_word_embeddings": True},
        "multi-head": {"num_key_value_heads": 4},
        "heads wider than hidden": {"head_dim": 32},
        "theta": {"rope_theta": 500.0},
        "linear scaling": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        "gelu": {"hidden_act": "gelu"},
        "epsilon": {"rms_norm_eps": 0.01},
    },
)
