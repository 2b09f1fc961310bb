"""HyperCLOVA X: Granite with a norm behind each sublayer too, and logits that are multiplied."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "hyperclovax",
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
        "logits_scaling": 0.5,
    },
    {
        "no norm behind": {"use_post_norm": False},
        "no multipliers": {
            "embedding_multiplier": 1.0,
            "attention_multiplier": None,
            "residual_multiplier": 1.0,
            "logits_scaling": 1.0,
        },
        "embedding multiplier": {"embedding_multiplier": 1.0},
        "attention multiplier": {"attention_multiplier": 0.5},
        "residual multiplier": {"residual_multiplier": 0.3},
        "logits scaling": {"logits_scaling": 2.0},
        "heads wider than hidden": {"head_dim": 32},
        "attention bias": {"attention_bias": True},
        "mlp bias": {"mlp_bias": True},
        "tied": {"tie_word_embeddings": True},
        "theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
        "epsilon": {"rms_norm_eps": 1e-2},
    },
    oracles=(5,),
)
