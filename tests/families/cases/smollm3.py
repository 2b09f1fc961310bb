"""SmolLM3: Llama with layers that do not rotate; only those may have a sliding window."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "smollm3",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 4,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
        "pad_token_id": 1,
        "rope_theta": 10000.0,
    },
    {
        "every second layer rotates": {"no_rope_layer_interval": 2},
        "listed layers rotate": {"no_rope_layers": [0, 1, 1, 0]},
        "every layer rotates": {"no_rope_layers": [1, 1, 1, 1]},
        "no layer rotates": {"no_rope_layers": [0, 0, 0, 0]},
        "window": {"use_sliding_window": True, "sliding_window": 12, "no_rope_layer_interval": 2},
        "window by layer types": {
            "use_sliding_window": True,
            "sliding_window": 12,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
        },
        "untied": {"tie_word_embeddings": False},
        "attention bias": {"attention_bias": True},
        "mlp bias": {"mlp_bias": True},
        "theta": {"rope_theta": 500.0},
        "linear scaling": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        "gelu": {"hidden_act": "gelu"},
        "epsilon": {"rms_norm_eps": 1e-2},
    },
    {
        "window": {"also": ("windows",)},
    },
)
