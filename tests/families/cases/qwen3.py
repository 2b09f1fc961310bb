"""Qwen3: Llama with a norm on each head of q and k."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "qwen3",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_hidden_layers": 3,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
        "sliding_window": 12,
    },
    {
        "heads wider than hidden": {"head_dim": 32},
        "heads of 8": {"head_dim": 8},
        "attention bias": {"attention_bias": True},
        "window in upper layers": {"use_sliding_window": True, "max_window_layers": 1},
        "window by layer types": {
            "use_sliding_window": True,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
        "tied": {"tie_word_embeddings": True},
        "multi-head": {"num_key_value_heads": 4},
        "multi-query": {"num_key_value_heads": 1},
        "theta": {"rope_theta": 500.0},
        "yarn": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24}},
        "relu": {"hidden_act": "relu"},
        "epsilon": {"rms_norm_eps": 1e-2},
    },
    {"window in upper layers": {"also": ("windows",)}},
)
