"""GLM-4.7-Flash: DeepSeek-V3's attention and routing behind a dense first layer.

Published: 30B with 3B active (31 GB in int8, 19 GB in int4).
"""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "glm4_moe_lite",
    {
        "hidden_size": 64,
        "num_attention_heads": 3,
        "num_key_value_heads": 3,
        "num_hidden_layers": 3,
        "intermediate_size": 80,
        "kv_lora_rank": 32,
        "q_lora_rank": 24,
        "qk_nope_head_dim": 12,
        "qk_rope_head_dim": 8,
        "v_head_dim": 16,
        "moe_intermediate_size": 32,
        "n_routed_experts": 8,
        "num_experts_per_tok": 3,
        "max_position_embeddings": CONTEXT,
    },
    {
        "groups": {"n_routed_experts": 12, "n_group": 4, "topk_group": 2},
        "queries of the hidden states": {"q_lora_rank": None},
        "listed layers": {"mlp_layer_types": ["sparse", "dense", "sparse"]},
        "no experts in any layer": {"mlp_layer_types": ["dense"] * 3},
        "halves rotate": {"rope_interleave": False},
        "attention bias": {"attention_bias": True},
        "theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
        "tied": {"tie_word_embeddings": True},
    },
    oracles=(5,),
)
