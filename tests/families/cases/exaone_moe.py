"""EXAONE 4 MoE (K-EXAONE): EXAONE 4 with norms before each sublayer, and experts routed as in DeepSeek-V3 with shared
ones.

Published: 236B with 23B active (244 GB in int8, 148 GB in int4).
"""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "exaone_moe",
    {
        "hidden_size": 64,
        "num_attention_heads": 6,
        "num_key_value_heads": 3,
        "head_dim": 16,
        "num_hidden_layers": 4,
        "intermediate_size": 80,
        "moe_intermediate_size": 32,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "sliding_window": 7,
        "max_position_embeddings": CONTEXT,
        "pad_token_id": 1,
    },
    {
        "groups": {"n_group": 4, "topk_group": 2},
        "listed experts": {"mlp_layer_types": ["sparse", "dense", "sparse", "dense"]},
        "full attention everywhere": {"layer_types": ["full_attention"] * 4},
        "weights that need not add up": {"norm_topk_prob": False, "routed_scaling_factor": 0.5},
        "two shared experts": {"num_shared_experts": 2},
        "tied": {"tie_word_embeddings": True},
    },
    oracles=(5,),
)
