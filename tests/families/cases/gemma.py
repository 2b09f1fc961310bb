"""Gemma: embeddings times the root of the width, norms of 1 + weight, heads wider than hidden / heads."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "gemma",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
        "pad_token_id": 1,
    },
    {
        "multi-head": {"num_key_value_heads": 4},
        "heads of 16": {"head_dim": 16},
        "attention bias": {"attention_bias": True},
        "untied": {"tie_word_embeddings": False},
        "theta": {"rope_theta": 500.0},
        "gelu": {"hidden_act": "gelu"},
        "relu": {"hidden_act": "relu"},
        "epsilon": {"rms_norm_eps": 1e-2},
    },
)
