"""Qwen2: Llama with biases on q, k and v; a sliding window in the upper layers where it is switched on."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "qwen2",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 3,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
        "sliding_window": 12,
    },
    {
        "window in upper layers": {"use_sliding_window": True, "max_window_layers": 1},
        "window in every layer": {"use_sliding_window": True, "max_window_layers": 0},
        "window in no layer": {"use_sliding_window": True, "max_window_layers": 3},
        "window by layer types": {
            "use_sliding_window": True,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
        "tied": {"tie_word_embeddings": True},
        "multi-head": {"num_key_value_heads": 4},
        "multi-query": {"num_key_value_heads": 1},
        "heads of 8": {"num_attention_heads": 8, "num_key_value_heads": 4},
        "theta": {"rope_theta": 500.0},
        "yarn": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24}},
        "gelu": {"hidden_act": "gelu"},
        "epsilon": {"rms_norm_eps": 1e-2},
    },
    {
        "window in upper layers": {"also": ("windows",)},
        "window in no layer": {"inert": "max_window_layers leaves no layer over"},
    },
)
