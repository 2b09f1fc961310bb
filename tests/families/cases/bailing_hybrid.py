"""Ling 3.0 (BailingMoeV3): Kimi delta attention, whose decay is bounded, and latent attention with a gate of each head
in the last layer of each group, with experts behind the first layers, routed as in DeepSeek-V3, with a shared one.

Published: Tiny with 7.9B, 1.3B of them active (8.1 GB in int8, 4.9 GB in int4). Flash has limits of what the gates of
experts give, and is refused.
"""

from tests.families.cases.case import CONTEXT, variants
from tests.families.cases.kept import CHOICE, Kept, fixed

CASES = variants(
    "bailing_hybrid",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "num_hidden_layers": 4,
        "intermediate_size": 80,
        "head_dim": 16,
        "kv_lora_rank": 24,
        "q_lora_rank": 20,
        "qk_nope_head_dim": 12,
        "qk_rope_head_dim": 8,
        "v_head_dim": 10,
        "layer_group_size": 2,
        "moe_intermediate_size": 32,
        "num_local_experts": 12,
        "num_experts_per_tok": 3,
        "n_group": 4,
        "topk_group": 2,
        "first_k_dense_replace": 1,
        "rope_theta": 10000.0,
        "max_position_embeddings": CONTEXT,
        "pad_token_id": 1,
    },
    {
        "decay without a bound": {"kda_safe_gate": False},
        "another bound": {"kda_lower_bound": -1.5},
        "queries of the hidden states": {"q_lora_rank": None},
        "longer groups": {"layer_group_size": 3, "num_hidden_layers": 3},
        "listed layers": {"layer_types": ["full_attention", "linear_attention", "linear_attention", "full_attention"]},
        "one group of experts": {"n_group": 1, "topk_group": 1},
        "weights that need not add up": {"norm_topk_prob": False, "routed_scaling_factor": 0.5},
        "two shared experts": {"n_shared_experts": 2},
        "experts in every layer": {"first_k_dense_replace": 0},
        "no experts in any layer": {"first_k_dense_replace": 4},
        "attention bias": {"attention_bias": True},
        "theta": {"rope_theta": 500.0},
        "epsilon": {"rms_norm_eps": 0.01},
        "width of the convolution": {"short_conv_kernel_size": 3},
        "a single token": {"short_conv_kernel_size": 1},
        "a bound that lets states grow": {"kda_lower_bound": 1.0},
        "gelu": {"hidden_act": "gelu"},
    },
    {
        "base": {
            "off_device": "it has fixed states",
            "kept": Kept(
                (*fixed(0), (1, "growing"), *fixed(2), (3, "growing")),
                2 * (3 * 3 * 64 + 4 * 16 * 16) * 4,
                CHOICE | {b"QMoE", b"Transpose", b"RotaryEmbedding", b"OneHot", b"Greater", b"Squeeze"},
                rolled_back=True,
            ),
        },
        "a single token": {"refused": "at least 2 expected"},
        "a bound that lets states grow": {"refused": "kda_lower_bound = 1: must be less than 0"},
        "gelu": {"refused": "Kimi delta attention is supported with silu only"},
    },
    oracles=(5,),
)
