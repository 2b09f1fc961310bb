"""Mistral 4: latent attention whose queries grow with their position, and experts weighed by a softmax, chosen from the
best groups, with shared ones.

Published: 119B with 6B active (123 GB in int8, 74 GB in int4).
"""

from tests.families.cases.case import CONTEXT, variants

YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 24,
    "mscale": 1.0,
    "mscale_all_dim": 1.0,
    "llama_4_scaling_beta": 0.1,
}

CASES = variants(
    "mistral4",
    {
        "hidden_size": 64,
        "num_attention_heads": 3,
        "num_key_value_heads": 3,
        "num_hidden_layers": 3,
        "intermediate_size": 80,
        "kv_lora_rank": 32,
        "q_lora_rank": 24,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 8,
        "v_head_dim": 10,
        "moe_intermediate_size": 32,
        "n_routed_experts": 8,
        "num_experts_per_tok": 3,
        "rope_parameters": YARN,
        "max_position_embeddings": CONTEXT,
    },
    {
        "groups": {"n_routed_experts": 12, "n_group": 4, "topk_group": 2},
        "queries of the hidden states": {"q_lora_rank": None},
        "weights that need not add up": {"norm_topk_prob": False, "routed_scaling_factor": 2.5},
        "two shared experts": {"n_shared_experts": 2},
        "dense first layer": {"first_k_dense_replace": 1},
        "no experts in any layer": {"first_k_dense_replace": 3},
        "halves rotate": {"rope_interleave": False},
        "attention bias": {"attention_bias": True},
        "steeper scale": {"rope_parameters": {**YARN, "llama_4_scaling_beta": 0.5}},
        "other shares of mscale": {"rope_parameters": {**YARN, "mscale": 0.5}},
        "tied": {"tie_word_embeddings": True},
    },
    oracles=(5,),
)
