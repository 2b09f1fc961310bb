"""Granite 4: Mamba-2 mixers instead of attention in most layers, or in none; a shared MLP, in some models experts too.

Published, all but the last two with and without mixers: 350M (0.4 GB in int8, 0.2 GB in int4), 1B (1.7 and 1.0 GB),
micro with 3.4B (3.5 and 2.1 GB); with experts: tiny with 7B (7 and 4 GB), small with 32B (33 and 18 GB).
"""

from tests.families.cases.case import CONTEXT, variants
from tests.families.cases.kept import Kept, fixed

EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2, "intermediate_size": 32}
ATTENTION = {"layer_types": ["attention"] * 3, "position_embedding_type": "rope"}

CASES = variants(
    "granitemoehybrid",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 3,
        "max_position_embeddings": CONTEXT,
        "shared_intermediate_size": 96,
        "num_local_experts": 0,
        "layer_types": ["mamba", "attention", "mamba"],
        "position_embedding_type": None,
        "mamba_n_heads": 4,
        "mamba_d_state": 16,
        "mamba_chunk_size": 8,
        "embedding_multiplier": 3.0,
        "attention_multiplier": 0.125,
        "residual_multiplier": 0.5,
        "logits_scaling": 2.0,
        "rope_theta": 10000.0,
    },
    {
        "experts": EXPERTS,
        "attention everywhere": ATTENTION,
        "attention everywhere, experts": {**ATTENTION, **EXPERTS},
        "rotation": {"position_embedding_type": "rope"},
        "no multipliers": {
            "embedding_multiplier": 1.0,
            "attention_multiplier": 1.0,
            "residual_multiplier": 1.0,
            "logits_scaling": 1.0,
        },
        "tied": {"tie_word_embeddings": True},
        "attention bias": {"attention_bias": True},
        "multi-head": {"num_key_value_heads": 4},
        "theta": {"position_embedding_type": "rope", "rope_theta": 500.0},
        "linear scaling": {"position_embedding_type": "rope", "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        "attention everywhere, gelu": {**ATTENTION, "hidden_act": "gelu"},
        "epsilon": {"rms_norm_eps": 0.01},
        "width of experts that are not there": {"intermediate_size": 32},
        "groups": {"mamba_n_groups": 2},
        "six heads": {"mamba_n_heads": 6, "mamba_expand": 3},
        "width of the convolution": {"mamba_d_conv": 2},
        "size of the state": {"mamba_d_state": 24},
        "biases of mixers": {"mamba_proj_bias": True},
        "no bias of convolutions": {"mamba_conv_bias": False},
        "mixers at the end": {"layer_types": ["attention", "mamba", "mamba"]},
        "a single token": {"mamba_d_conv": 1},
        "mixers everywhere": {"layer_types": ["mamba"] * 3},
        "time steps within limits": {"time_step_limit": [0.01, 0.1]},
        "gelu": {"hidden_act": "gelu"},
    },
    {
        "base": {
            "also": ("chats", "denormals"),
            "no_defaults": "at least one layer must have attention",
            "off_device": "it has fixed states",
            "kept": Kept(
                (*fixed(0), (1, "growing"), *fixed(2)),
                2 * (3 * (2 * 64 + 2 * 16) + 4 * 16 * 32) * 4,
                frozenset({b"LinearAttention"}),
            ),
        },
        "width of experts that are not there": {"inert": "there are no experts"},
        "groups": {"oracles": (5,)},  # transformers 4 normalizes all groups together
        "a single token": {"refused": "mamba_d_conv = 1: .* at least 2 expected"},
        "mixers everywhere": {"refused": "at least one layer must have attention", "oracles": (4,)},
        "time steps within limits": {"refused": "limits of time steps are not supported", "oracles": (5,)},
        "gelu": {"refused": "recurrent layers are supported with silu only"},
    },
)
