"""Flint: Qwen3 MoE with attention sinks, sigmoids that weigh experts, and one that every token uses; layers whose
attention has a window rotate, the others do not."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "flint",
    {
        "hidden_size": 64,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_hidden_layers": 4,
        "intermediate_size": 80,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 48,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "mlp_only_layers": [0],
        "sliding_window": 7,
        "max_position_embeddings": CONTEXT,
    },
    {
        "weights that need not add up": {"norm_topk_prob": False},
        "listed windows": {"layer_types": ["sliding_attention", "full_attention"] * 2},
        "experts in every second layer": {"decoder_sparse_step": 2, "mlp_only_layers": []},
        "no experts in any layer": {"mlp_only_layers": [0, 1, 2, 3]},
        "attention bias": {"attention_bias": True},
        "tied": {"tie_word_embeddings": True},
    },
    oracles=(5,),
)
