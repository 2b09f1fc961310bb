"""Granite with sliding windows: attention sinks, and a rotation of its own for each layer, or none."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "granite_swa",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 4,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
        "embedding_multiplier": 3.0,
        "attention_multiplier": 0.25,
        "residual_multiplier": 0.7,
        "logits_scaling": 2.0,
        "sliding_window": 12,
    },
    {
        "window in no layer": {"layer_types": ["full_attention"] * 4},
        "listed windows": {"layer_types": ["sliding_attention", "full_attention"] * 2},
        "window of 2": {"sliding_window": 2},
        "a theta for each layer": {"layer_rope_theta": [500.0, 10000.0, 500.0, 100.0]},
        "layers without rotation": {"layer_rope_theta": [0, 10000.0, 10000.0, 0]},
        "theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
        "multi-query": {"num_key_value_heads": 1},
        "attention bias": {"attention_bias": True},
        "mlp bias": {"mlp_bias": True},
        "untied": {"tie_word_embeddings": False},
        "epsilon": {"rms_norm_eps": 1e-2},
    },
    oracles=(5,),
)
