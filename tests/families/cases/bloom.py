"""BLOOM: ALiBi, a norm after the embedding, QKV fused head by head."""

from tests.families.cases.case import variants

CASES = variants(
    "bloom",
    {"hidden_size": 64, "n_head": 4, "n_layer": 2},
    {
        "1 head": {"n_head": 1},
        "2 heads": {"n_head": 2},
        "8 heads": {"n_head": 8},
        "3 heads": {"hidden_size": 48, "n_head": 3},
        "6 heads": {"hidden_size": 96, "n_head": 6},
        "residual after the norm": {"apply_residual_connection_post_layernorm": True},
        "slow but exact": {"slow_but_exact": True},
        "untied": {"tie_word_embeddings": False},
        "epsilon": {"layer_norm_epsilon": 1e-2},
    },
    {
        "base": {"also": ("batches",), "off_device": "its attention has a bias"},
        "slow but exact": {"inert": "it adds up in another order, and of one part there is one order"},
    },
)
