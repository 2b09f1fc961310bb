"""Falcon-H1: Llama with a Mamba-2 mixer beside the attention of every layer, and multipliers of most matrices.

Published: 0.5B, 1.5B (also deep), 3B, 7B, 34B (0.5, 1.6, 3.3, 7.8 and 35 GB in int8, 0.3 to 21 GB in int4).
"""

from tests.families.cases.case import CONTEXT, variants
from tests.families.cases.kept import Kept, fixed

NORM = {"mamba_rms_norm": True}

CASES = variants(
    "falcon_h1",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
        "mamba_d_ssm": 96,
        "mamba_n_heads": 4,
        "mamba_d_state": 16,
        "mamba_chunk_size": 8,
        "embedding_multiplier": 3.0,
        "lm_head_multiplier": 0.5,
        "key_multiplier": 0.4,
        "attention_in_multiplier": 0.8,
        "attention_out_multiplier": 1.5,
        "ssm_in_multiplier": 1.25,
        "ssm_multipliers": [0.4, 0.3, 0.2, 0.5, 0.35],
        "ssm_out_multiplier": 1.7,
        "mlp_multipliers": [0.9, 0.6],
    },
    {
        "norm before the gate": NORM,
        "norm after the gate": {**NORM, "mamba_norm_before_gate": False},
        "groups": {**NORM, "mamba_n_groups": 2},
        "no multipliers": {
            "embedding_multiplier": 1.0,
            "lm_head_multiplier": 1.0,
            "key_multiplier": 1.0,
            "attention_in_multiplier": 1.0,
            "attention_out_multiplier": 1.0,
            "ssm_in_multiplier": 1.0,
            "ssm_multipliers": None,
            "ssm_out_multiplier": 1.0,
            "mlp_multipliers": None,
        },
        "expanded": {"mamba_d_ssm": None, "mamba_expand": 2},
        "tied": {"tie_word_embeddings": True},
        "biases of mixers": {"mamba_proj_bias": True, "projectors_bias": True},
        "no bias of convolutions": {"mamba_conv_bias": False},
        "biases": {"attention_bias": True, "mlp_bias": True, "projectors_bias": True},
        "multi-head": {"num_key_value_heads": 4},
        "width of the convolution": {"mamba_d_conv": 3},
        "theta": {"rope_theta": 500.0},
        "linear scaling": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        "epsilon": {**NORM, "rms_norm_eps": 0.01},
        "a single token": {"mamba_d_conv": 1},
        "an activation": {"hidden_act": "gelu"},
    },
    {
        "base": {
            "also": ("denormals",),
            "off_device": "it has fixed states",
            "kept": Kept(
                (*fixed(0), (0, "growing"), *fixed(1), (1, "growing")),
                2 * (3 * (96 + 2 * 16) + 4 * 16 * 24) * 4,
                frozenset({b"LinearAttention"}),
            ),
        },
        "biases": {"oracles": (5,)},
        "a single token": {"refused": "mamba_d_conv = 1: .* at least 2 expected"},
        "an activation": {"refused": "recurrent layers are supported with silu only"},
    },
)
