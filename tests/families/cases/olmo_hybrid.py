"""OLMo Hybrid: gated delta nets with norms before them, whose writes may change a sign, and the attention of OLMo 2
without positions in every fourth layer.

Published: 7B (7.7 GB in int8, 4.6 GB in int4).
"""

from tests.families.cases.case import CONTEXT, variants
from tests.families.cases.kept import Kept, fixed

CASES = variants(
    "olmo_hybrid",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 4,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
        "rope_parameters": {"rope_type": "default", "rope_theta": None},
        "pad_token_id": 1,
    },
    {
        "positions": {"rope_parameters": {"rope_type": "default", "rope_theta": 10000.0}},
        "positions by default": {"rope_parameters": None},
        "no negative eigenvalues": {"linear_allow_neg_eigval": False},
        "other sizes": {"linear_num_value_heads": 8, "linear_key_head_dim": 8, "linear_value_head_dim": 12},
        "two key heads": {"linear_num_key_heads": 2},
        "attention first": {
            "layer_types": ["full_attention", "linear_attention", "linear_attention", "full_attention"]
        },
        "two layers": {"num_hidden_layers": 2},
        "multi-head": {"num_key_value_heads": 4},
        "attention bias": {"attention_bias": True},
        "tied": {"tie_word_embeddings": True},
        "epsilon": {"rms_norm_eps": 0.01},
        "width of the convolution": {"linear_conv_kernel_dim": 3},
        "a single token": {"linear_conv_kernel_dim": 1},
        "gelu": {"hidden_act": "gelu"},
    },
    {
        "base": {
            "also": ("denormals",),
            "off_device": "it has fixed states",
            "kept": Kept(
                (*fixed(0, 1, 2), (3, "growing")), 3 * (3 * (2 * 48 + 96) + 4 * 12 * 24) * 4, rolled_back=True
            ),
        },
        "a single token": {"refused": "at least 2 expected"},
        "gelu": {"refused": "gated delta nets are supported with silu only"},
    },
    oracles=(5,),
)
