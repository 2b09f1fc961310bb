"""LFM2 with experts in all but the first layers: sigmoids weigh them, and a bias of each has a say in the choice alone.

Published: 8B with 1B active (8.6 GB in int8, 5.2 GB in int4), also as LFM2.5, and 24B with 2B active.
"""

from tests.families.cases.case import CONTEXT, variants
from tests.families.cases.kept import CHOICE, Kept

CASES = variants(
    "lfm2_moe",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 4,
        "intermediate_size": 96,
        "moe_intermediate_size": 48,
        "num_experts": 8,
        "num_experts_per_tok": 2,
        "num_dense_layers": 1,
        "layer_types": ["conv", "full_attention", "conv", "full_attention"],
        "max_position_embeddings": CONTEXT,
        "pad_token_id": 1,
    },
    {
        "no bias in the choice": {"use_expert_bias": False},
        "weights that need not add up": {"norm_topk_prob": False},
        "neither": {"use_expert_bias": False, "norm_topk_prob": False},
        "scaled experts": {"routed_scaling_factor": 2.5},
        "scaled, not adding up": {"routed_scaling_factor": 0.5, "norm_topk_prob": False},
        "one expert per token": {"num_experts_per_tok": 1},
        "many experts": {"num_experts": 24, "num_experts_per_tok": 4},
        "all experts": {"num_experts": 4, "num_experts_per_tok": 4},
        "experts in every layer": {"num_dense_layers": 0},
        "no experts in any layer": {"num_dense_layers": 4},
        "width 5": {"conv_L_cache": 5},
        "bias of convolutions": {"conv_bias": True},
        "untied": {"tie_word_embeddings": False},
        "theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
        "epsilon": {"norm_eps": 1e-2},
        "odd width": {"moe_intermediate_size": 40},
        "a single token": {"conv_L_cache": 1},
    },
    {
        "base": {
            "no_defaults": "layer_types: missing",
            "off_device": "it has fixed states",
            "kept": Kept(
                ((0, "fixed"), (1, "growing"), (2, "fixed"), (3, "growing")),
                2 * 2 * 64 * 4,
                CHOICE | {b"QMoE"},
                rolled_back=True,
            ),
        },
        "odd width": {"refused": "the width of an expert = 40: experts of this size are not supported"},
        "a single token": {"refused": "at least 2 expected"},
    },
    oracles=(5,),
)
