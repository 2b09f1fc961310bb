"""Kimi Linear: Kimi delta attention, whose state decays by channel, and latent attention without positions in every
fourth layer, with experts behind the first layer, chosen by sigmoids and a bias of each, with a shared one.

Published: 48B with 3B active (51 GB in int8, 31 GB in int4).
"""

from tests.families.cases.case import CONTEXT, variants
from tests.families.cases.kept import CHOICE, Kept, fixed

NET = {"head_dim": 16, "num_heads": 4, "short_conv_kernel_size": 4}
LISTED = {**NET, "kda_layers": [1, 2, 4], "full_attn_layers": [3]}

CASES = variants(
    "kimi_linear",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "num_hidden_layers": 4,
        "intermediate_size": 80,
        "kv_lora_rank": 24,
        "qk_nope_head_dim": 12,
        "qk_rope_head_dim": 8,
        "v_head_dim": 10,
        "linear_attn_config": LISTED,
        "moe_intermediate_size": 32,
        "num_local_experts": 8,
        "num_experts_per_tok": 3,
        "max_position_embeddings": CONTEXT,
        "pad_token_id": 1,
    },
    {
        "layers by default": {"linear_attn_config": NET, "num_hidden_layers": 5},
        "layers and sizes by name": {
            "linear_attn_config": {},
            "layer_types": ["full_attention", "linear_attention", "linear_attention", "full_attention"],
            "linear_head_dim": 8,
            "linear_num_heads": 6,
            "linear_conv_kernel_dim": 3,
        },
        "low rank of queries": {"q_lora_rank": 20},
        "groups": {"num_local_experts": 12, "n_group": 4, "topk_group": 2},
        "weights that need not add up": {"norm_topk_prob": False, "routed_scaling_factor": 0.5},
        "two shared experts": {"n_shared_experts": 2},
        "experts in every layer": {"first_k_dense_replace": 0},
        "no experts in any layer": {"first_k_dense_replace": 4},
        "listed experts": {"mlp_layer_types": ["sparse", "dense", "sparse", "dense"]},
        "attention bias": {"attention_bias": True},
        "epsilon": {"rms_norm_eps": 0.01},
        "a single token": {"linear_attn_config": {**LISTED, "short_conv_kernel_size": 1}},
        "a layer of both kinds": {"linear_attn_config": {**NET, "kda_layers": [1, 2], "full_attn_layers": [2, 3, 4]}},
        "gelu": {"hidden_act": "gelu"},
    },
    {
        "base": {
            "also": ("batches", "denormals"),
            "off_device": "it has fixed states",
            "deep": {
                "linear_attn_config": {
                    **NET,
                    "kda_layers": [1, 2, 4, 5, 7, 8, 10, 11],
                    "full_attn_layers": [3, 6, 9, 12],
                }
            },
            "kept": Kept(
                (*fixed(0, 1), (2, "growing"), *fixed(3)),
                3 * (3 * 3 * 64 + 4 * 16 * 16) * 4,
                CHOICE | {b"QMoE", b"Transpose"},
                rolled_back=True,
            ),
        },
        "a single token": {"refused": "at least 2 expected"},
        "a layer of both kinds": {"refused": "each layer from 1 to 4 expected once in one of them"},
        "gelu": {"refused": "Kimi delta attention is supported with silu only"},
    },
    oracles=(5,),
)
