"""GPT-J: interleaved rotary positions, one norm for both branches of a layer, a head with a bias."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "gptj",
    {"n_embd": 64, "n_head": 4, "n_layer": 2, "rotary_dim": 8, "n_positions": CONTEXT},
    {
        "whole heads rotate": {"rotary_dim": 16},
        "4 of 16 rotate": {"rotary_dim": 4},
        "heads of 32": {"n_head": 2, "rotary_dim": 16},
        "inner size": {"n_inner": 80},
        "gelu": {"activation_function": "gelu"},
        "relu": {"activation_function": "relu"},
        "tied": {"tie_word_embeddings": True},
        "epsilon": {"layer_norm_epsilon": 1e-2},
    },
    {
        "base": {"size": ("n_embd", 512)},
    },
)
