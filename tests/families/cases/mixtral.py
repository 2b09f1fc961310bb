"""Mixtral: Mistral with experts, of which each token takes two."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "mixtral",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "num_local_experts": 4,
        "max_position_embeddings": CONTEXT,
    },
    {
        "one expert per token": {"num_experts_per_tok": 1},
        "every expert": {"num_experts_per_tok": 4},
        "experts of 16": {"intermediate_size": 16},
        "many experts": {"num_local_experts": 24, "intermediate_size": 32, "num_experts_per_tok": 5},
        "window": {"sliding_window": 12},
        "tied": {"tie_word_embeddings": True},
        "theta": {"rope_theta": 500.0},
        "epsilon": {"rms_norm_eps": 1e-2},
        "gelu": {"hidden_act": "gelu"},
        "experts of 40": {"intermediate_size": 40},
    },
    {
        "base": {"also": ("exactness",)},
        "window": {"also": ("windows",)},
        "gelu": {"refused": "hidden_act: experts are supported with silu only"},
        "experts of 40": {"refused": "the width of an expert = 40: .* only multiples of 16"},
    },
)
