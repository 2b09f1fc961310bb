"""Qwen3 with experts, whose weights need not add up to one."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "qwen3_moe",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "moe_intermediate_size": 32,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "max_position_embeddings": CONTEXT,
        "sliding_window": 12,
    },
    {
        "weights that add up to one": {"norm_topk_prob": True},
        "one expert per token": {"num_experts_per_tok": 1},
        "many experts": {"num_experts": 24, "num_experts_per_tok": 8},
        "window": {"use_sliding_window": True},
        "no experts in any layer": {"mlp_only_layers": [0, 1]},
        "no layer at its step": {"decoder_sparse_step": 3},
        "heads wider than hidden": {"head_dim": 32},
        "attention bias": {"attention_bias": True},
        "tied": {"tie_word_embeddings": True},
        "experts in one layer": {"mlp_only_layers": [1]},
        "experts in every second layer": {"decoder_sparse_step": 2},
    },
    {
        "window": {"also": ("windows",)},
        "base": {"also": ("batches",)},
    },
)
