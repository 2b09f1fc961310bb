"""Nemotron-H: layers that are a Mamba-2 mixer, attention without positions, an MLP of a squared ReLU, or such MLPs as
experts, one of them.

Published: Nemotron-H 4B, 8B, 47B, 56B, Nemotron Nano 2 with 9B and 12B (4.1 to 58 GB in int8, 2.5 to 35 GB in int4),
and with experts Nemotron 3 Nano 30B with 3.6B active (33 GB in int8, 20 GB in int4).
"""

from tests.families.cases.case import CONTEXT, variants
from tests.families.cases.kept import Kept, fixed

EXPERTS = {
    "layers_block_type": ["linear_attention", "moe", "full_attention", "mlp", "linear_attention", "moe"],
    "n_routed_experts": 8,
    "num_experts_per_tok": 3,
    "moe_intermediate_size": 32,
    "moe_shared_expert_intermediate_size": 48,
    "routed_scaling_factor": 2.5,
}
"""As Nemotron 3 Nano has them, but fewer."""

CASES = variants(
    "nemotron_h",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "layers_block_type": ["linear_attention", "mlp", "full_attention", "mlp", "linear_attention"],
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
        "mamba_num_heads": 4,
        "mamba_head_dim": 24,
        "n_groups": 2,
        "ssm_state_size": 16,
        "chunk_size": 8,
        "time_step_min": 1e-8,  # to which transformers raises the time steps of prompts, but not of single tokens
    },
    {
        "one group": {"n_groups": 1},
        "mixers side by side": {"layers_block_type": ["full_attention", "linear_attention", "linear_attention", "mlp"]},
        "biases": {"use_bias": True, "mlp_bias": True},
        "no bias of convolutions": {"use_conv_bias": False},
        "multi-head": {"num_key_value_heads": 4},
        "wide heads": {"head_dim": 24},
        "width of the convolution": {"conv_kernel": 3},
        "silu": {"mlp_hidden_act": "silu"},
        "relu": {"mlp_hidden_act": "relu"},
        "epsilon": {"layer_norm_epsilon": 0.01},
        "a single token": {"conv_kernel": 1},
        "experts": EXPERTS,
        "experts in groups": {**EXPERTS, "n_group": 4, "topk_group": 2},
        "experts of a latent size": {**EXPERTS, "moe_latent_size": 48, "mlp_bias": True},
        "experts whose weights need not add up": {**EXPERTS, "norm_topk_prob": False, "routed_scaling_factor": 0.5},
        "one expert per token": {**EXPERTS, "num_experts_per_tok": 1},
        "many experts of an odd width": {**EXPERTS, "n_routed_experts": 40, "moe_intermediate_size": 20},
        "experts with silu": {**EXPERTS, "mlp_hidden_act": "silu"},
        "too few experts in groups": {**EXPERTS, "n_group": 4, "topk_group": 1},
        "several shared experts": {**EXPERTS, "n_shared_experts": 2},
        "mixers with gelu": {"mamba_hidden_act": "gelu"},
    },
    {
        "experts": {
            "also": ("exactness",),
            "exact_with": {},
            "kept": Kept(
                (*fixed(0), (2, "growing"), *fixed(4)),
                2 * (3 * (96 + 2 * 2 * 16) + 4 * 16 * 24) * 4,
                frozenset({b"LinearAttention", b"TopK", b"OneHot", b"GatherElements", b"ReduceSum", b"Squeeze"}),
            ),
        },
        "base": {
            "no_defaults": "hybrid_override_pattern: a letter .* per layer expected",
            "off_device": "it has fixed states",
        },
        "a single token": {"refused": "conv_kernel = 1: .* at least 2 expected"},
        "too few experts in groups": {"refused": "num_experts_per_tok = 3: topk_group = 1 groups do not have so many"},
        "several shared experts": {"refused": "n_shared_experts = 2"},
        "mixers with gelu": {"refused": "mamba_hidden_act: recurrent layers are supported with silu only"},
    },
    oracles=(5,),
)
