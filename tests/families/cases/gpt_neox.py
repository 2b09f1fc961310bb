"""GPT-NeoX: rotary positions on a part of each head, parallel residual with two norms, QKV fused head by head."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "gpt_neox",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
    },
    {
        "whole heads rotate": {"rotary_pct": 1.0},
        "half of each head rotates": {"rotary_pct": 0.5},
        "heads of 32": {"num_attention_heads": 2},
        "sequential": {"use_parallel_residual": False},
        "no attention bias": {"attention_bias": False},
        "tied": {"tie_word_embeddings": True},
        "theta": {"rotary_emb_base": 500},
        "linear scaling": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        "gelu_new": {"hidden_act": "gelu_new"},
        "relu": {"hidden_act": "relu"},
        "epsilon": {"layer_norm_eps": 1e-2},
    },
    {"base": {"also": ("exactness",)}},
)
