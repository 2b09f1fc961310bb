"""Inkling: attention with a learned number for each distance, and short convolutions of keys, values and sublayers.

Published: Inkling, with towers for pictures and sound (975B).
"""

from tests.families.cases.case import CONTEXT, variants
from tests.families.cases.kept import CHOICE, Kept, fixed

CASES = variants(
    "inkling_text",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "swa_num_attention_heads": 8,
        "swa_num_key_value_heads": 2,
        "swa_head_dim": 8,
        "sliding_window_size": 12,
        "d_rel": 5,
        "rel_extent": 20,
        "num_hidden_layers": 3,
        "layer_types": ["hybrid_sliding", "hybrid", "hybrid_sliding"],
        "mlp_layer_types": ["dense", "sparse", "sparse"],
        "intermediate_size": 96,
        "moe_intermediate_size": 32,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "n_shared_experts": 2,
        "route_scale": 2.0,
        "logits_mup_width_multiplier": 1.5,
        "max_position_embeddings": CONTEXT,
    },
    {
        "queries scaled by position": {"log_scaling_n_floor": 10, "log_scaling_alpha": 0.8},
        "a short extent": {"rel_extent": 7},
        "an extent beyond the context": {"rel_extent": 200},
        "windows by number": {"layer_types": None, "local_layer_ids": [1]},
        "every sixth layer whole": {"layer_types": None, "num_hidden_layers": 6, "mlp_layer_types": ["dense"] * 6},
        "narrow convolutions": {"conv_kernel_size": 2},
        "wide convolutions": {"conv_kernel_size": 6},
        "experts everywhere": {"mlp_layer_types": None},
        "one shared expert": {"n_shared_experts": 1, "num_experts_per_tok": 3},
        "all dense": {"mlp_layer_types": ["dense"] * 3, "hidden_act": "gelu"},
        "other heads": {"num_key_value_heads": 1, "swa_num_attention_heads": 6, "swa_num_key_value_heads": 6},
        "multiplier": {"logits_mup_width_multiplier": 3.0},
        "epsilon": {"rms_norm_eps": 0.01},
        "other experts": {"mlp_layer_types": ["sparse"] * 3, "hidden_act": "gelu"},
        "wide experts": {"moe_intermediate_size": 24},
    },
    {
        "base": {
            "off_device": "it has fixed states",
            "kept": Kept(
                (*fixed(0, 0), (0, "windowed"), *fixed(1, 1), (1, "growing"), *fixed(2, 2), (2, "windowed")),
                2 * 3 * (3 * 64 + 2 * 16 + 32) * 4,
                CHOICE | {b"QMoE", b"Transpose", b"Squeeze"},
                rolled_back=True,
            ),
        },
        "other experts": {"refused": "hidden_act: experts are supported with silu only"},
        "wide experts": {"refused": "moe_intermediate_size = 24: experts of this size are not supported"},
    },
    oracles=(5,),
)
