"""Youtu-LLM: Llama with DeepSeek-V3's latent attention.

Published: 2B (2.0 GB in int8, 1.2 GB in int4).
"""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "youtu",
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
        "max_position_embeddings": CONTEXT,
    },
    {
        "queries of the hidden states": {"q_lora_rank": None},
        "halves rotate": {"rope_interleave": False},
        "attention bias": {"attention_bias": True},
        "untied": {"tie_word_embeddings": False},
        "theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    },
    oracles=(5,),
)
