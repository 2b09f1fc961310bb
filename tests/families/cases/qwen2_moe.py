"""Qwen2 with experts, whose weights need not add up to one, and a shared one that every token uses."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "qwen2_moe",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 80,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 96,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "max_position_embeddings": CONTEXT,
    },
    {
        "weights that add up to one": {"norm_topk_prob": True},
        "one expert per token": {"num_experts_per_tok": 1},
        "many experts": {"num_experts": 24, "num_experts_per_tok": 4},
        "experts in one layer": {"mlp_only_layers": [0]},
        "experts in every second layer": {"decoder_sparse_step": 2},
        "no experts in any layer": {"mlp_only_layers": [0, 1]},
        "no biases": {"qkv_bias": False},
        "tied": {"tie_word_embeddings": True},
        "theta": {"rope_theta": 500.0},
        "window": {"use_sliding_window": True, "sliding_window": 12},
    },
    {"window": {"refused": "which layers have a sliding window is not settled"}},
)
