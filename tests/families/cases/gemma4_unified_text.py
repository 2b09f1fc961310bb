"""Gemma 4 unified: Gemma 4 without embeddings of layers and experts, whose pictures and sounds have no towers.

Published: 12B (12 GB in int8, 7.5 GB in int4).
"""

from tests.families.cases.case import CONTEXT, variants

_SLIDING = {"rope_type": "default", "rope_theta": 100.0}
_FULL = {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 10000.0}

CASES = variants(
    "gemma4_unified_text",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_global_key_value_heads": 1,
        "head_dim": 16,
        "global_head_dim": 32,
        "attention_k_eq_v": True,
        "num_hidden_layers": 12,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
        "sliding_window": 12,
        "rope_parameters": {"sliding_attention": _SLIDING, "full_attention": _FULL},
        "pad_token_id": 1,
    },
    {
        "values of their own": {"attention_k_eq_v": False, "num_hidden_layers": 6},
        "shared keys and values": {"num_kv_shared_layers": 4, "attention_k_eq_v": False},
        "bidirectional": {"use_bidirectional_attention": "all", "num_hidden_layers": 6},
    },
    {"base": {"exact_with": {"num_hidden_layers": 6}}, "bidirectional": {"refused": "use_bidirectional_attention"}},
    oracles=(5,),
)
