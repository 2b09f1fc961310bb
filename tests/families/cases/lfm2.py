"""LFM2: short convolutions in most layers, attention with normalized queries and keys in the others.

Published: 350M, 700M, 1.2B, 2.6B (0.4 to 2.9 GB in int8, 0.3 to 1.8 GB in int4); LFM2.5 1.2B.
"""

from tests.families.cases.case import CONTEXT, variants
from tests.families.cases.kept import Kept

CASES = variants(
    "lfm2",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 4,
        "intermediate_size": 96,
        "block_auto_adjust_ff_dim": False,
        "layer_types": ["conv", "full_attention", "conv", "full_attention"],
        "max_position_embeddings": CONTEXT,
        "pad_token_id": 1,
    },
    {
        "listed attention": {"layer_types": None, "full_attn_idxs": [0, 3]},
        "attention everywhere": {"layer_types": None},
        "convolutions at the end": {"layer_types": ["full_attention", "conv", "conv", "conv"]},
        "width 2": {"conv_L_cache": 2},
        "width 5": {"conv_L_cache": 5},
        "bias of convolutions": {"conv_bias": True},
        "adjusted width of the MLP": {"block_auto_adjust_ff_dim": True, "block_multiple_of": 32},
        "factor of the MLP": {
            "block_auto_adjust_ff_dim": True,
            "block_multiple_of": 8,
            "block_ffn_dim_multiplier": 1.7,
        },
        "untied": {"tie_word_embeddings": False},
        "multi-head": {"num_key_value_heads": 4},
        "theta": {"rope_theta": 500.0},
        "epsilon": {"norm_eps": 1e-2},
        "a single token": {"conv_L_cache": 1},
        "convolutions everywhere": {"layer_types": ["conv"] * 4},
    },
    {
        "base": {
            "also": ("chats", "denormals"),
            "off_device": "it has fixed states",
            "kept": Kept(
                ((0, "fixed"), (1, "growing"), (2, "fixed"), (3, "growing")), 2 * 2 * 64 * 4, rolled_back=True
            ),
        },
        "a single token": {"refused": "at least 2 expected"},
        "convolutions everywhere": {"refused": "at least one layer must have attention"},
    },
)
