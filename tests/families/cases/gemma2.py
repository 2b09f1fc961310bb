"""Gemma 2: norms before and after each block, a window in every second layer, capped scores and logits."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "gemma2",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "query_pre_attn_scalar": 24,
        "num_hidden_layers": 4,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
        "sliding_window": 12,
        "attn_logit_softcapping": 5.0,
        "final_logit_softcapping": 6.0,
        "pad_token_id": 1,
    },
    {
        "no caps": {"attn_logit_softcapping": None, "final_logit_softcapping": None},
        "capped scores": {"final_logit_softcapping": None},
        "capped logits": {"attn_logit_softcapping": None},
        "scalar of the head size": {"query_pre_attn_scalar": 16},
        "listed windows": {
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
        },
        "odd number of layers": {"num_hidden_layers": 3},
        "heads of 32": {"head_dim": 32},
        "multi-query": {"num_key_value_heads": 1},
        "attention bias": {"attention_bias": True},
        "untied": {"tie_word_embeddings": False},
        "theta": {"rope_theta": 500.0},
        "gelu": {"hidden_activation": "gelu"},
        "epsilon": {"rms_norm_eps": 1e-2},
    },
    {
        "base": {"also": ("windows", "far past windows", "batches", "groups")},
    },
)
