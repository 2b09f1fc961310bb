"""Bamba: Llama with Mamba-2 mixers instead of attention in most layers; half of each head rotates.

Published: 9B (10 GB in int8, 6 GB in int4).
"""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "bamba",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 3,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
        "attn_layer_indices": [1],
        "mamba_n_heads": 4,
        "mamba_d_state": 16,
        "mamba_chunk_size": 8,
    },
    {
        "attention at both ends": {"attn_layer_indices": [0, 2]},
        "attention everywhere": {"attn_layer_indices": [0, 1, 2]},
        "tied": {"tie_word_embeddings": True},
        "multi-head": {"num_key_value_heads": 4},
        "biases of mixers": {"mamba_proj_bias": True},
        "no bias of convolutions": {"mamba_conv_bias": False},
        "width of the convolution": {"mamba_d_conv": 3},
        "epsilon": {"rms_norm_eps": 0.01},
        "a single token": {"mamba_d_conv": 1},
        "mixers with gelu": {"hidden_act": "gelu"},
    },
    {
        "base": {"no_defaults": "at least one layer must have attention", "off_device": "it has fixed states"},
        "a single token": {"refused": "mamba_d_conv = 1: .* at least 2 expected"},
        "mixers with gelu": {"refused": "recurrent layers are supported with silu only"},
    },
)
