"""Cohere 2: Cohere whose layers with a window rotate and whose other layers do not."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "cohere2",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 4,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
        "sliding_window": 12,
        "logit_scale": 0.5,
        "pad_token_id": 1,
    },
    {
        "pattern of 2": {"sliding_window_pattern": 2},
        "listed windows": {
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
        },
        "window beyond the context": {"sliding_window": 4096},
        "logit scale": {"logit_scale": 1.0},
        "multi-head": {"num_key_value_heads": 4},
        "attention bias": {"attention_bias": True},
        "untied": {"tie_word_embeddings": False},
        "theta": {"rope_theta": 500.0},
        "linear scaling": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        "gelu": {"hidden_act": "gelu"},
        "epsilon": {"layer_norm_eps": 1e-2},
    },
    {
        "base": {"also": ("windows", "far past windows", "batches")},
    },
)
