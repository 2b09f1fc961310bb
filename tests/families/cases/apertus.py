"""Apertus: Llama with a norm on each head of q and k, and xIELU, whose numbers are trained, in place of a gate.

Published: 8B (8.3 GB in int8, 5.0 GB in int4), 70B (73 and 44 GB).
"""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "apertus",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
        "rope_theta": 10000.0,
        "rope_scaling": {
            "rope_type": "llama3",
            "factor": 8.0,
            "low_freq_factor": 1.0,
            "high_freq_factor": 4.0,
            "original_max_position_embeddings": 48,
        },
    },
    {
        "another activation": {"hidden_act": "gelu"},
        "attention bias": {"attention_bias": True},
        "tied": {"tie_word_embeddings": True},
        "multi-head": {"num_key_value_heads": 4},
        "heads of 8": {"num_attention_heads": 8, "num_key_value_heads": 4},
        "theta": {"rope_theta": 500.0},
        "no scaling": {"rope_scaling": {"rope_type": "default"}},
        "epsilon": {"rms_norm_eps": 0.01},
    },
)
