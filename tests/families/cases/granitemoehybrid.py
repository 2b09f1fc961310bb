"""Granite 4 without recurrent layers: Granite whose MLP is called the shared one of experts, with or without RoPE.

Published: 350M (0.4 GB in int8, 0.2 GB in int4), 1B (1.7 and 1.0 GB), micro with 3.4B (3.5 and 2.1 GB).
"""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "granitemoehybrid",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "max_position_embeddings": CONTEXT,
        "shared_intermediate_size": 96,
        "num_local_experts": 0,
        "mamba_n_heads": 4,
        "layer_types": ["attention", "attention"],
        "position_embedding_type": "rope",
        "embedding_multiplier": 3.0,
        "attention_multiplier": 0.125,
        "residual_multiplier": 0.5,
        "logits_scaling": 2.0,
        "rope_theta": 10000.0,
    },
    {
        "no rotation": {"position_embedding_type": None},
        "no multipliers": {
            "embedding_multiplier": 1.0,
            "attention_multiplier": 1.0,
            "residual_multiplier": 1.0,
            "logits_scaling": 1.0,
        },
        "tied": {"tie_word_embeddings": True},
        "attention bias": {"attention_bias": True},
        "multi-head": {"num_key_value_heads": 4},
        "theta": {"rope_theta": 500.0},
        "linear scaling": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        "gelu": {"hidden_act": "gelu"},
        "epsilon": {"rms_norm_eps": 0.01},
        "width of experts that are not there": {"intermediate_size": 32},
        "a recurrent layer": {"layer_types": ["attention", "mamba"]},
        "experts": {"num_local_experts": 4},
    },
    {
        "width of experts that are not there": {"inert": "there are no experts"},
        "a recurrent layer": {"refused": "layer_types: 1 of 2 layers are recurrent"},
        "experts": {"refused": "num_local_experts"},
    },
)
