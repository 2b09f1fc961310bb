"""Granite: Llama with multipliers of embeddings, scores, residuals and logits."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "granite",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
        "embedding_multiplier": 3.0,
        "attention_multiplier": 0.125,
        "residual_multiplier": 0.7,
        "logits_scaling": 2.0,
    },
    {
        "no multipliers": {
            "embedding_multiplier": 1.0,
            "attention_multiplier": 1.0,
            "residual_multiplier": 1.0,
            "logits_scaling": 1.0,
        },
        "embedding multiplier": {"embedding_multiplier": 1.0},
        "attention multiplier": {"attention_multiplier": 0.25},
        "residual multiplier": {"residual_multiplier": 1.0},
        "logits scaling": {"logits_scaling": 1.0},
        "tied": {"tie_word_embeddings": True},
        "attention bias": {"attention_bias": True},
        "mlp bias": {"mlp_bias": True},
        "multi-head": {"num_key_value_heads": 4},
        "theta": {"rope_theta": 500.0},
        "linear scaling": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        "gelu": {"hidden_act": "gelu"},
        "epsilon": {"rms_norm_eps": 1e-2},
    },
)
