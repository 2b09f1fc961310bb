"""Command R with experts: Command R7B, whose first layers may be dense, with shared experts that may be averaged with
the others."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "cohere2_moe",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_hidden_layers": 5,
        "intermediate_size": 32,
        "prefix_dense_intermediate_size": 80,
        "first_k_dense_replace": 1,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "num_shared_experts": 1,
        "sliding_window": 7,
        "logit_scale": 0.5,
        "max_position_embeddings": CONTEXT,
        "pad_token_id": 1,
    },
    {
        "shared experts are added": {"shared_expert_combination_strategy": "sum", "num_shared_experts": 2},
        "no shared experts": {"num_shared_experts": 0},
        "sigmoids": {"expert_selection_fn": "sigmoid"},
        "sigmoids that need not add up": {"expert_selection_fn": "sigmoid", "norm_topk_prob": False},
        "RMSNorm": {"rms_norm_eps": 1e-5},
        "dense layers with windows of their own": {
            "first_k_dense_replace": 3,
            "prefix_dense_sliding_window_pattern": 2,
        },
        "dense layers as wide as experts": {"prefix_dense_intermediate_size": None},
        "listed layers": {
            "layer_types": ["sliding_attention", "full_attention"] * 2 + ["sliding_attention"],
            "mlp_layer_types": ["sparse", "dense", "dense", "sparse", "sparse"],
        },
        "no dense layers": {"first_k_dense_replace": 0},
        "an untied head": {"tie_word_embeddings": False},
    },
    oracles=(5,),
)
