"""StarCoder2: LayerNorm, rotary positions, a plain MLP, biases everywhere, a window."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "starcoder2",
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
        "no window": {"sliding_window": None},
        "window beyond the context": {"sliding_window": 4096},
        "no biases": {"use_bias": False},
        "multi-query": {"num_key_value_heads": 1},
        "multi-head": {"num_key_value_heads": 4},
        "untied": {"tie_word_embeddings": False},
        "theta": {"rope_theta": 500.0},
        "linear scaling": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        "gelu": {"hidden_act": "gelu"},
        "relu": {"hidden_act": "relu"},
        "epsilon": {"norm_epsilon": 1e-2},
    },
    {
        "base": {"also": ("windows",)},
    },
)
