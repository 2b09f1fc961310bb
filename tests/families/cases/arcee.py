"""Arcee: Llama with an MLP that has no gate and squares its ReLU."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "arcee",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
    },
    {
        "attention bias": {"attention_bias": True},
        "mlp bias": {"mlp_bias": True},
        "multi-head": {"num_key_value_heads": 4},
        "heads wider than hidden": {"head_dim": 32},
        "tied": {"tie_word_embeddings": True},
        "theta": {"rope_theta": 500.0},
        "yarn": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24}},
        "gelu": {"hidden_act": "gelu"},
        "epsilon": {"rms_norm_eps": 1e-2},
    },
)
