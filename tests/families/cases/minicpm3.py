"""MiniCPM3: MiniCPM's multipliers, and latent attention that rotates halves of a part of each head.

Published: 4B (4.2 GB in int8, 2.5 GB in int4).
"""

from tests.families.cases.case import CONTEXT, variants

YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 24,
    "mscale": 0.7,
    "mscale_all_dim": 0.9,
}

CASES = variants(
    "minicpm3",
    {
        "hidden_size": 48,
        "num_attention_heads": 3,
        "num_key_value_heads": 3,
        "num_hidden_layers": 2,
        "intermediate_size": 80,
        "kv_lora_rank": 24,
        "q_lora_rank": 20,
        "qk_nope_head_dim": 12,
        "qk_rope_head_dim": 8,
        "v_head_dim": 10,
        "scale_emb": 3.0,
        "scale_depth": 1.1,
        "dim_model_base": 16,
        "max_position_embeddings": CONTEXT,
    },
    {
        "queries of the hidden states": {"q_lora_rank": None},
        "values of the heads' size": {"v_head_dim": None},
        "attention bias": {"attention_bias": True},
        "MLP bias": {"mlp_bias": True},
        "no multipliers": {"scale_emb": 1.0, "scale_depth": None, "dim_model_base": None},
        "untied": {"tie_word_embeddings": False},
        "theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
        "as published": {"v_head_dim": None, "scale_emb": 12, "scale_depth": 1.4, "dim_model_base": 256},
        "yarn": {"rope_parameters": YARN},
        "latents of an odd size": {"kv_lora_rank": 25},
    },
    {"latents of an odd size": {"refused": "kv_lora_rank \\+ qk_rope_head_dim = 33: latents of this size"}},
    oracles=(5,),
)
