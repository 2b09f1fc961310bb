"""ERNIE 4.5: Llama that rotates adjacent pairs; every matrix may have a bias.

Published: 0.3B (0.4 GB in int8, 0.2 GB in int4).
"""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "ernie4_5",
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
        "biases": {"use_bias": True},
        "untied": {"tie_word_embeddings": False},
        "multi-head": {"num_key_value_heads": 4},
        "heads wider than hidden": {"head_dim": 32},
        "heads of 8": {"head_dim": 8},
        "theta": {"rope_theta": 500.0},
        "linear scaling": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        "gelu": {"hidden_act": "gelu"},
        "epsilon": {"rms_norm_eps": 0.01},
    },
)
