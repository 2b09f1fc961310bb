"""Gemma 3: Gemma 2 with norms on the heads of q and k, and two thetas, one for layers with a window."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "gemma3_text",
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
        "sliding_window_pattern": 2,
        "rope_theta": 10000.0,
        "rope_local_base_freq": 100.0,
        "pad_token_id": 1,
    },
    {
        "pattern of 3": {"sliding_window_pattern": 3},
        "pattern of 6": {"sliding_window_pattern": 6},
        "listed windows": {
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
        },
        "one theta": {"rope_local_base_freq": 10000.0},
        "linear scaling of full layers": {"rope_scaling": {"rope_type": "linear", "factor": 8.0}},
        "capped logits": {"final_logit_softcapping": 6.0},
        "cap of scores that nobody reads": {"attn_logit_softcapping": 5.0},
        "scalar of the head size": {"query_pre_attn_scalar": 16},
        "heads of 32": {"head_dim": 32},
        "multi-query": {"num_key_value_heads": 1},
        "attention bias": {"attention_bias": True},
        "untied": {"tie_word_embeddings": False},
        "gelu": {"hidden_activation": "gelu"},
        "epsilon": {"rms_norm_eps": 1e-2},
        "bidirectional": {"use_bidirectional_attention": True},
    },
    {
        "base": {"also": ("int4 KV", "windows", "far past windows", "batches")},
        "untied": {"also": ("hidden states",)},
        "cap of scores that nobody reads": {"inert": "Gemma3Attention stores it and does not use it"},
        "bidirectional": {"refused": "use_bidirectional_attention"},
    },
)
