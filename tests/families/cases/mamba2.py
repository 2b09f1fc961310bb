"""Mamba-2: layers that are a Mamba-2 mixer and nothing else; there is no attention, and no KV cache.

Published: 130M, 370M, 780M, 1.3B, 2.7B, Codestral Mamba 7B (0.1 to 7.5 GB in int8, 0.1 to 4.6 GB in int4).
"""

from tests.families.cases.case import variants
from tests.families.cases.kept import Kept, fixed

CASES = variants(
    "mamba2",
    {
        "hidden_size": 64,
        "num_hidden_layers": 3,
        "num_heads": 4,
        "head_dim": 32,
        "n_groups": 1,
        "state_size": 16,
        "chunk_size": 8,
    },
    {
        "groups": {"n_groups": 2},
        "narrow": {"expand": 1, "num_heads": 2},
        "tied": {"tie_word_embeddings": True},
        "biases": {"use_bias": True},
        "no bias of convolutions": {"use_conv_bias": False},
        "width of the convolution": {"conv_kernel": 3},
        "epsilon": {"layer_norm_epsilon": 0.01},
        "a single token": {"conv_kernel": 1},
        "gelu": {"hidden_act": "gelu"},
        "limits of time steps": {"time_step_limit": [0.0, 0.1]},
    },
    {
        "base": {
            "heads": ("num_heads", 16),
            "off_device": "it has fixed states",
            "kept": Kept(fixed(0, 1, 2), 3 * (3 * (128 + 2 * 16) + 4 * 16 * 32) * 4, frozenset({b"LinearAttention"})),
        },
        "groups": {"oracles": (5,)},  # transformers 4 normalizes all groups together, unlike the models' own code
        "tied": {"oracles": (5,)},  # transformers 4 cannot write it
        "a single token": {"refused": "conv_kernel = 1: .* at least 2 expected"},
        "gelu": {"refused": "recurrent layers are supported with silu only"},
        "limits of time steps": {"refused": "limits of time steps are not supported"},
    },
)
