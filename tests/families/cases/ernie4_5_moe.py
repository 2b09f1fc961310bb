"""ERNIE 4.5 MoE: ERNIE 4.5 with experts in some layers, chosen with a bias of each, and shared ones.

Published: 21B with 3B active (23 GB in int8, 14 GB in int4), 300B with 47B active.
"""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "ernie4_5_moe",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 3,
        "intermediate_size": 80,
        "moe_intermediate_size": 32,
        "moe_num_experts": 8,
        "moe_k": 3,
        "max_position_embeddings": CONTEXT,
        "pad_token_id": 1,
    },
    {
        "biases": {"use_bias": True, "tie_word_embeddings": False},
        "a least sum of weights": {"moe_norm_min": 0.6},
        "no shared expert": {"moe_num_shared_experts": 0},
        "experts in one layer": {"moe_layer_start_index": 1, "moe_layer_end_index": 1},
        "experts in every second layer": {"moe_layer_start_index": 0, "moe_layer_interval": 2},
        "one expert per token": {"moe_k": 1},
        "no experts in any layer": {"moe_layer_start_index": 3},
        "theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
    },
    {
        "base": {"config_classes": (4, 5)},
    },
    oracles=(5,),
)
