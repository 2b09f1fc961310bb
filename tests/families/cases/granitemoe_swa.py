"""Granite with sliding windows, attention sinks and experts."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "granitemoe_swa",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 4,
        "intermediate_size": 96,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "max_position_embeddings": CONTEXT,
        "embedding_multiplier": 3.0,
        "attention_multiplier": 0.0625,
        "residual_multiplier": 0.4,
        "logits_scaling": 2.0,
        "sliding_window": 12,
    },
    {
        "shared expert": {"shared_intermediate_size": 80},
        "window in no layer": {"layer_types": ["full_attention"] * 4},
        "listed windows": {"layer_types": ["sliding_attention", "full_attention"] * 2},
        "a theta for each layer": {"layer_rope_theta": [500.0, 10000.0, 500.0, 100.0]},
        "layers without rotation": {"layer_rope_theta": [0, 10000.0, 10000.0, 0]},
        "attention bias": {"attention_bias": True},
        "one expert per token": {"num_experts_per_tok": 1},
        "many experts": {"num_local_experts": 24, "num_experts_per_tok": 4},
        "tied": {"tie_word_embeddings": True},
        "epsilon": {"rms_norm_eps": 1e-2},
    },
    oracles=(5,),
)
