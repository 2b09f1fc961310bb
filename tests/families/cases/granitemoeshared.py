"""Granite with experts, and a shared one that every token uses."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "granitemoeshared",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "max_position_embeddings": CONTEXT,
        "embedding_multiplier": 3.0,
        "attention_multiplier": 0.125,
        "residual_multiplier": 0.7,
        "logits_scaling": 2.0,
        "shared_intermediate_size": 80,
    },
    {
        "no shared expert": {"shared_intermediate_size": 0},
        "one expert per token": {"num_experts_per_tok": 1},
        "many experts": {"num_local_experts": 24, "num_experts_per_tok": 4},
        "residual multiplier": {"residual_multiplier": 1.0},
        "tied": {"tie_word_embeddings": True},
    },
)
