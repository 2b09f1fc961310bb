"""Qwen3-Next: the layers of Qwen3.5, whose projections are fused by key head, with experts and a shared one.

Published: 80B with 3B active (82 GB in int8, 50 GB in int4).
"""

from tests.families.cases.case import CONTEXT, variants
from tests.families.cases.kept import Kept, fixed

CASES = variants(
    "qwen3_next",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "num_hidden_layers": 4,
        "intermediate_size": 80,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 48,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "max_position_embeddings": CONTEXT,
        "pad_token_id": 1,
    },
    {
        "tied": {"tie_word_embeddings": True},
        "other heads": {"linear_num_key_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 24},
        "one key head": {"linear_num_key_heads": 1},
        "attention first": {
            "layer_types": ["full_attention", "linear_attention", "linear_attention", "full_attention"]
        },
        "weights that do not add up": {"norm_topk_prob": False},
        "experts in one layer": {"mlp_only_layers": [0, 1, 3]},
        "no experts in any layer": {"mlp_only_layers": [0, 1, 2, 3]},
        "width 2": {"linear_conv_kernel_dim": 2},
        "a single token": {"linear_conv_kernel_dim": 1},
    },
    {
        "base": {
            "also": ("denormals",),
            "off_device": "it has fixed states",
            "kept": Kept(
                (*fixed(0, 1, 2), (3, "growing")),
                3 * (3 * (2 * 32 + 64) + 4 * 16 * 16) * 4,
                frozenset({b"QMoE", b"RotaryEmbedding"}),
                rolled_back=True,
            ),
        },
        "a single token": {"refused": "at least 2 expected"},
    },
)
