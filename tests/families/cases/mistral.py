"""Mistral: Llama with a sliding window in every layer."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "mistral",
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
        "window of 2": {"sliding_window": 2},
        "multi-query": {"num_key_value_heads": 1},
        "heads wider than hidden": {"head_dim": 32},
        "heads of 8": {"num_attention_heads": 8, "num_key_value_heads": 4},
        "theta": {"rope_theta": 500.0},
        "linear scaling": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        "tied": {"tie_word_embeddings": True},
        "gelu": {"hidden_act": "gelu"},
        "epsilon": {"rms_norm_eps": 1e-2},
    },
    {
        "base": {"also": ("windows", "far past windows", "batches")},
    },
)
