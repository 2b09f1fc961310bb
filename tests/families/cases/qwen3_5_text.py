"""Qwen3.5: gated delta nets in three of four layers, gated attention with rotary positions on a quarter in the others.

Published: 0.8B, 2B, 4B, 9B, 27B (0.9, 2.1, 4.8, 10 and 30 GB in int8; 0.5, 1.2, 2.7, 6 and 17 GB in int4), with vision,
of which the language model is exported.
"""

from tests.families.cases.case import CONTEXT, variants
from tests.families.cases.kept import Kept, fixed

ROPE = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}

CASES = variants(
    "qwen3_5_text",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "num_hidden_layers": 4,
        "intermediate_size": 96,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "max_position_embeddings": CONTEXT,
        "rope_parameters": ROPE,
        "tie_word_embeddings": True,
        "pad_token_id": 1,
    },
    {
        "untied": {"tie_word_embeddings": False},
        "attention first": {
            "layer_types": ["full_attention", "linear_attention", "linear_attention", "full_attention"]
        },
        "other heads": {"linear_num_key_heads": 4, "linear_key_head_dim": 8, "linear_value_head_dim": 24},
        "one key head": {"linear_num_key_heads": 1},
        "width 2": {"linear_conv_kernel_dim": 2},
        "multi-head": {"num_key_value_heads": 4},
        "attention bias": {"attention_bias": True},
        "a quarter rotated": {"rope_parameters": {**ROPE, "partial_rotary_factor": 0.25}},
        "positions of pictures": {"rope_parameters": {**ROPE, "mrope_section": [4, 2, 2], "mrope_interleaved": True}},
        "theta": {"rope_parameters": {**ROPE, "rope_theta": 300.0}},
        "epsilon": {"rms_norm_eps": 1e-2},
        "a single token": {"linear_conv_kernel_dim": 1},
        "gelu": {"hidden_act": "gelu"},
    },
    {
        "base": {
            "also": ("calibrated", "int4 KV", "chats", "denormals"),
            "off_device": "it has fixed states",
            "kept": Kept(
                (*fixed(0, 1, 2), (3, "growing")), 3 * (3 * (2 * 32 + 64) + 4 * 16 * 16) * 4, rolled_back=True
            ),
        },
        "positions of pictures": {"inert": "positions of text are the same in all three dimensions"},
        "a single token": {"refused": "at least 2 expected"},
        "gelu": {"refused": "gated delta nets are supported with silu only"},
    },
    oracles=(5,),
)
