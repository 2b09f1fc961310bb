"""OLMo 3: OLMo 2 with a window in three of four layers, which take no part in RoPE scaling.

Published: 7B (7.5 GB in int8, 4.5 GB in int4), 32B (33 and 20 GB).
"""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "olmo3",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 4,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
        "sliding_window": 12,
        "rope_theta": 10000.0,
        "pad_token_id": 1,
    },
    {
        "listed windows": {
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
        },
        "window beyond the context": {"sliding_window": 4096},
        "attention bias": {"attention_bias": True},
        "tied": {"tie_word_embeddings": True},
        "multi-head": {"num_key_value_heads": 4},
        "theta": {"rope_theta": 500.0},
        "yarn of full layers": {
            "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24}
        },
        "gelu": {"hidden_act": "gelu"},
        "epsilon": {"rms_norm_eps": 0.01},
    },
)
