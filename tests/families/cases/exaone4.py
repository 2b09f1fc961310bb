"""EXAONE 4: norms behind each block and on each head of q and k; where some layers have a window, only those rotate.

Published: 1.2B (1.3 GB in int8, 0.8 GB in int4), 32B (33 and 20 GB).
"""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "exaone4",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 4,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
        "sliding_window": 12,
        "rope_theta": 10000.0,
    },
    {
        "no window": {
            "sliding_window": None,
            "layer_types": ["full_attention", "full_attention", "full_attention", "full_attention"],
        },
        "pattern of 2": {"sliding_window_pattern": 2},
        "pattern in letters": {
            "sliding_window_pattern": "LG",
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
        },
        "listed windows": {
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
        },
        "window beyond the context": {"sliding_window": 4096},
        "tied": {"tie_word_embeddings": True},
        "multi-head": {"num_key_value_heads": 4},
        "heads wider than hidden": {"head_dim": 32},
        "theta": {"rope_theta": 500.0},
        "llama3 scaling": {
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 16.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 48,
            }
        },
        "gelu": {"hidden_act": "gelu"},
        "epsilon": {"rms_norm_eps": 0.01},
    },
)
