"""Jamba: Llama with Mamba-1 mixers instead of attention in most layers, no positions, and experts in every other layer.

Published: Jamba Reasoning 3B without experts (3.3 GB in int8, 2 GB in int4), Mini with 52B, 12B active (53 GB in int8).
"""

from tests.families.cases.case import CONTEXT, variants
from tests.families.cases.kept import CHOICE, SCAN, Kept, fixed

CASES = variants(
    "jamba",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 4,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
        "attn_layer_period": 3,
        "attn_layer_offset": 1,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "use_mamba_kernels": False,
    },
    {
        "no experts": {"num_experts": 1, "num_experts_per_tok": 1},
        "experts elsewhere": {"expert_layer_period": 3, "expert_layer_offset": 0},
        "one expert": {"num_experts_per_tok": 1},
        "attention at both ends": {"attn_layer_offset": 0},
        "attention everywhere": {"attn_layer_period": 1, "attn_layer_offset": 0},
        "tied": {"tie_word_embeddings": True},
        "multi-head": {"num_key_value_heads": 4},
        "biases of mixers": {"mamba_proj_bias": True},
        "no bias of convolutions": {"mamba_conv_bias": False},
        "width of the convolution": {"mamba_d_conv": 3},
        "rank of time steps": {"mamba_dt_rank": 16},
        "epsilon": {"rms_norm_eps": 0.01},
        "a single token": {"mamba_d_conv": 1},
        "gelu": {"hidden_act": "gelu", "num_experts": 1, "num_experts_per_tok": 1},
    },
    {
        "base": {
            "also": ("batches",),
            "off_device": "it has fixed states",
            "kept": Kept(
                (*fixed(0), (1, "growing"), *fixed(2, 3)),
                3 * (3 + 16) * 128 * 4,
                CHOICE | SCAN | {b"QMoE", b"Softmax"},
                rolled_back=True,
            ),
        },
        "a single token": {"refused": "mamba_d_conv = 1: .* at least 2 expected"},
        "gelu": {"refused": "recurrent layers are supported with silu only"},
    },
)
