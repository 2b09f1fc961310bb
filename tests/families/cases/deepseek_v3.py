"""DeepSeek-V3 and R1, Moonlight and Kimi K2: latent attention that rotates adjacent channels of a part of each head,
and experts behind the first layers, chosen from the best groups by sigmoids and a bias of each, with shared ones.

Published: Moonlight with 16B, 3B of them active (16 GB in int8, 10 GB in int4); DeepSeek-V3 with 671B, 37B of them
active (692 GB in int8, 420 GB in int4).
"""

from tests.families.cases.case import CONTEXT, variants
from tests.families.cases.kept import CHOICE, Kept

YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 24,
    "mscale": 0.7,
    "mscale_all_dim": 0.9,
}

CASES = variants(
    "deepseek_v3",
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
        "v_head_dim": 10,
        "moe_intermediate_size": 32,
        "n_routed_experts": 8,
        "num_experts_per_tok": 3,
        "first_k_dense_replace": 1,
        "n_group": 1,
        "topk_group": 1,
        "max_position_embeddings": CONTEXT,
    },
    {
        "groups": {"n_routed_experts": 12, "n_group": 4, "topk_group": 2},
        "queries of the hidden states": {"q_lora_rank": None},
        "weights that need not add up": {"norm_topk_prob": False, "routed_scaling_factor": 0.5},
        "two shared experts": {"n_shared_experts": 2},
        "experts in every layer": {"first_k_dense_replace": 0},
        "no experts in any layer": {"first_k_dense_replace": 3},
        "halves rotate": {"rope_interleave": False},
        "attention bias": {"attention_bias": True},
        "tied": {"tie_word_embeddings": True},
        "yarn": {"rope_parameters": YARN},
        "too few experts in groups": {"n_group": 4, "topk_group": 1},
    },
    {
        "base": {
            "also": ("int4 KV",),
            "config_classes": (4, 5),
            "kept": Kept(
                ((0, "growing"), (1, "growing"), (2, "growing")),
                operators=CHOICE | {b"QMoE", b"RotaryEmbedding", b"Transpose"},
            ),
        },
        "too few experts in groups": {"refused": "num_experts_per_tok = 3: topk_group = 1 groups do not have so many"},
    },
    oracles=(5,),
)
