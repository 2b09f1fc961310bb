"""Hunyuan 3: Qwen3 with experts in most layers, weighed by sigmoids and chosen with a bias of each, and shared ones.

Published: 295B with 21B active (304 GB in int8, 184 GB in int4).
"""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "hy_v3",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 24,
        "num_hidden_layers": 3,
        "intermediate_size": 80,
        "moe_intermediate_size": 32,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "max_position_embeddings": CONTEXT,
    },
    {
        "listed experts": {"mlp_layer_types": ["sparse", "dense", "sparse"]},
        "scaled experts": {"router_scaling_factor": 0.5},
        "two shared experts": {"num_shared_experts": 2},
        "biases": {"attention_bias": True},
        "tied": {"tie_word_embeddings": True},
    },
    oracles=(5,),
)
