"""MPT: ALiBi whose slopes are in another order than BLOOM's, LayerNorm without a bias, QKV one after the other."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "mpt",
    {"d_model": 64, "n_heads": 4, "n_layers": 2, "max_seq_len": CONTEXT},
    {
        "3 heads": {"d_model": 48, "n_heads": 3},
        "6 heads": {"d_model": 96, "n_heads": 6},
        "another scale": {"attn_config": {"softmax_scale": 0.5}},
        "clamped": {"attn_config": {"clip_qkv": 0.5}},
        "epsilon": {"layer_norm_epsilon": 1e-2},
        "learned positions": {"attn_config": {"alibi": False}},
        "another width": {"expansion_ratio": 2},
    },
    {
        "base": {"size": ("d_model", 256), "off_device": "its attention has a bias"},
        "learned positions": {"refused": r"attn_config\.alibi = False: positions without ALiBi"},
        "another width": {"refused": "expansion_ratio = 2: .* four times as wide"},
    },
)
