"""Hunyuan, dense: Llama with a norm on each head of q and k behind the rotation, whose base may be stretched.

Published: 0.5B (0.5 GB in int8, 0.3 GB in int4), 1.8B (1.9 and 1.1 GB), 4B (4.2 and 2.5 GB), 7B (7.7 and 4.7 GB).
"""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "hunyuan_v1_dense",
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
        "stretched base": {"rope_scaling": {"rope_type": "dynamic", "alpha": 50.0, "factor": 1.0}},
        "attention bias": {"attention_bias": True},
        "tied": {"tie_word_embeddings": True},
        "multi-head": {"num_key_value_heads": 4},
        "heads wider than hidden": {"head_dim": 32},
        "heads of 8": {"head_dim": 8},
        "theta": {"rope_theta": 500.0},
        "linear scaling": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        "gelu": {"hidden_act": "gelu"},
        "epsilon": {"rms_norm_eps": 0.01},
    },
)
