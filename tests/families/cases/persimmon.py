"""Persimmon: partial RoPE, norms of q and k, QKV fused head by head, an MLP of squared ReLU."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "persimmon",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "intermediate_size": 80,
        "max_position_embeddings": CONTEXT,
    },
    {
        "no norms of q and k": {"qk_layernorm": False},
        "gelu": {"hidden_act": "gelu"},
        "3 heads": {"hidden_size": 96, "num_attention_heads": 3},
        "tied": {"tie_word_embeddings": True},
        "epsilon": {"layer_norm_eps": 1e-2},
    },
)
