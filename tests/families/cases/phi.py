"""Phi: rotary positions on a part of each head, one norm for both branches of a layer, biases everywhere."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "phi",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
    },
    {
        "whole heads rotate": {"partial_rotary_factor": 1.0},
        "6 of 16 rotate": {"partial_rotary_factor": 0.4},
        "heads of 32": {"num_attention_heads": 2},
        "normalized q and k": {"qk_layernorm": True},
        "grouped heads": {"num_key_value_heads": 2},
        "multi-query": {"num_key_value_heads": 1},
        "tied": {"tie_word_embeddings": True},
        "theta": {"rope_theta": 500.0},
        "linear scaling": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        "gelu": {"hidden_act": "gelu"},
        "relu": {"hidden_act": "relu"},
        "epsilon": {"layer_norm_eps": 1e-2},
    },
)
