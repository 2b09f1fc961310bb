"""Nemotron: LayerNorm of 1 + weight, half of each head rotates, a squared ReLU without gate."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "nemotron",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
    },
    {
        "whole heads rotate": {"partial_rotary_factor": 1.0},
        "heads of 32": {"head_dim": 32},
        "attention bias": {"attention_bias": True},
        "mlp bias": {"mlp_bias": True},
        "multi-query": {"num_key_value_heads": 1},
        "tied": {"tie_word_embeddings": True},
        "theta": {"rope_theta": 500.0},
        "gelu": {"hidden_act": "gelu"},
        "epsilon": {"norm_eps": 1e-2},
    },
)
