"""Mamba: layers that are a Mamba-1 mixer and nothing else; there is no attention, and no KV cache.

Published: 130M, 370M, 790M, 1.4B, 2.8B (0.1 to 2.9 GB in int8, 0.1 to 1.8 GB in int4).
"""

from tests.families.cases.case import variants
from tests.families.cases.kept import SCAN, Kept, fixed

BASE = {"hidden_size": 64, "num_hidden_layers": 3, "state_size": 16}
CHANGES = {
    "wide": {"expand": 3},
    "untied": {"tie_word_embeddings": False},
    "biases": {"use_bias": True},
    "no bias of convolutions": {"use_conv_bias": False},
    "width of the convolution": {"conv_kernel": 3},
    "numbers of a state": {"state_size": 8},
    "rank of time steps": {"time_step_rank": 16},
    "epsilon": {"layer_norm_epsilon": 0.01},
    "a single token": {"conv_kernel": 1},
    "gelu": {"hidden_act": "gelu"},
}
OTHERS = {
    "base": {
        "kept": Kept(fixed(0, 1, 2), 3 * (3 + 16) * 128 * 4, SCAN, rolled_back=True),
        "off_device": "it has fixed states",
        "heads": ("state_size", 4),
    },
    "a single token": {"refused": "conv_kernel = 1: .* at least 2 expected"},
    "gelu": {"refused": "recurrent layers are supported with silu only"},
}

CASES = variants("mamba", BASE, CHANGES, OTHERS, quiet="x_proj")  # time steps, B and C are not scaled
