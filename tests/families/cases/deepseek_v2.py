"""DeepSeek-V2: latent attention that rotates adjacent channels of a part of each head, and experts behind the first
layers, weighed by a softmax that need not add up to one, with shared ones.

Published: DeepSeek-V2-Lite with 16B, 2.4B of them active (16 GB in int8, 9.8 GB in int4).
"""

from tests.families.cases.case import CONTEXT, variants
from tests.families.cases.deepseek_v3 import YARN

CASES = variants(
    "deepseek_v2",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 3,
        "intermediate_size": 80,
        "kv_lora_rank": 32,
        "q_lora_rank": None,
        "qk_nope_head_dim": 12,
        "qk_rope_head_dim": 8,
        "v_head_dim": 10,
        "moe_intermediate_size": 32,
        "n_routed_experts": 8,
        "num_experts_per_tok": 3,
        "first_k_dense_replace": 1,
        "max_position_embeddings": CONTEXT,
    },
    {
        "groups": {"n_routed_experts": 12, "topk_method": "group_limited_greedy", "n_group": 4, "topk_group": 2},
        "queries of few numbers": {"q_lora_rank": 24},
        "scaled weights": {"routed_scaling_factor": 2.5},
        "one shared expert": {"n_shared_experts": 1},
        "no experts in any layer": {"first_k_dense_replace": 3},
        "attention bias": {"attention_bias": True},
        "tied": {"tie_word_embeddings": True},
        "yarn": {"rope_parameters": {**YARN, "mscale": 0.707, "mscale_all_dim": 0.707}},
        "normalized weights": {"norm_topk_prob": True},
    },
    {
        "base": {"no_defaults": "num_experts_per_tok: missing"},
        "normalized weights": {"refused": "norm_topk_prob = True: the weights of experts are not normalized"},
    },
    oracles=(5,),
)
