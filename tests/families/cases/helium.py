"""Helium: Llama whose adjacent pairs rotate."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "helium",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
        "head_dim": 16,
    },
    {
        "multi-head": {"num_key_value_heads": 4},
        "heads of 8": {"num_attention_heads": 8, "head_dim": 8},
        "attention bias": {"attention_bias": True},
        "mlp bias": {"mlp_bias": True},
        "tied": {"tie_word_embeddings": True},
        "theta": {"rope_theta": 500.0},
        "linear scaling": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        "gelu": {"hidden_act": "gelu"},
        "epsilon": {"rms_norm_eps": 1e-2},
    },
)
