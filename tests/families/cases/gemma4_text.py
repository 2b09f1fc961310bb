"""Gemma 4: Gemma 3 with normalized values, larger heads and keys as values in full attention, scaled layers.

Published: 31B (32 GB in int8, 19 GB in int4), and with embeddings of each layer and shared KV caches E2B (4.8 GB in
int8, of which 2.4 GB are a table of embeddings) and E4B (7.7 GB, and 2.9 GB), and with experts beside the MLPs
26B with 3.8B active (26 GB in int8, 16 GB in int4).
"""

from tests.families.cases.case import CONTEXT, variants
from tests.families.cases.kept import Kept

_SLIDING = {"rope_type": "default", "rope_theta": 100.0}
_FULL = {"rope_type": "proportional", "partial_rotary_factor": 0.25, "rope_theta": 10000.0}

E2B = {
    "hidden_size_per_layer_input": 32,
    "vocab_size_per_layer_input": 96,
    "num_hidden_layers": 6,
    "layer_types": ["sliding_attention", "full_attention"] * 3,
    "num_kv_shared_layers": 3,
    "use_double_wide_mlp": True,
    "attention_k_eq_v": False,
    "num_key_value_heads": 1,
}
"""As the small models are: embeddings of each layer, and the last half of the layers shares keys and values."""

EXPERTS = {
    "enable_moe_block": True,
    "num_experts": 8,
    "top_k_experts": 3,
    "moe_intermediate_size": 32,
}

CASES = variants(
    "gemma4_text",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_global_key_value_heads": 1,
        "head_dim": 16,
        "global_head_dim": 32,
        "attention_k_eq_v": True,
        "num_hidden_layers": 4,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
        "sliding_window": 12,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "hidden_size_per_layer_input": 0,
        "rope_parameters": {"sliding_attention": _SLIDING, "full_attention": _FULL},
        "pad_token_id": 1,
    },
    {
        "pattern of 6": {"layer_types": None, "num_hidden_layers": 6},
        "last layer with a window": {"layer_types": ["full_attention", "sliding_attention"] * 2},
        "values of their own": {"attention_k_eq_v": False},
        "heads of one size": {"global_head_dim": 16, "num_global_key_value_heads": 2},
        "heads of 24": {"head_dim": 24, "global_head_dim": 24},
        "all pairs turn": {
            "rope_parameters": {
                "sliding_attention": _SLIDING,
                "full_attention": {**_FULL, "partial_rotary_factor": 1.0},
            }
        },
        "slower rotation": {
            "rope_parameters": {"sliding_attention": _SLIDING, "full_attention": {**_FULL, "factor": 8.0}}
        },
        "plain rotation": {"rope_parameters": {"sliding_attention": _SLIDING, "full_attention": _SLIDING}},
        "capped logits": {"final_logit_softcapping": 6.0},
        "attention bias": {"attention_bias": True},
        "untied": {"tie_word_embeddings": False},
        "gelu": {"hidden_activation": "gelu"},
        "epsilon": {"rms_norm_eps": 1e-2},
        "bidirectional in images": {"use_bidirectional_attention": "vision"},
        "bidirectional": {"use_bidirectional_attention": "all"},
        "shared keys and values": {"num_kv_shared_layers": 2, "hidden_size_per_layer_input": 8},
        "embeddings of layers": {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 96},
        "wide MLPs where none share": {"use_double_wide_mlp": True},
        "E2B": E2B,
        "E2B with one kind shared": {**E2B, "num_kv_shared_layers": 1},
        "E2B with heads of 24": {**E2B, "head_dim": 24, "global_head_dim": 24},
        "E2B, wide table": {**E2B, "vocab_size_per_layer_input": 112},
        "more rows than tokens": {"hidden_size_per_layer_input": 8, "vocab_size_per_layer_input": 95},
        "12 layers": {"layer_types": None, "num_hidden_layers": 12},
        "E2B of 14 layers": {**E2B, "layer_types": None, "num_hidden_layers": 14, "num_kv_shared_layers": 4},
        "experts": EXPERTS,
        "one expert per token": {**EXPERTS, "top_k_experts": 1},
        "many experts of an odd width": {**EXPERTS, "num_experts": 40, "moe_intermediate_size": 20},
        "experts, embeddings of layers": {**EXPERTS, **E2B, "use_double_wide_mlp": False},
        "experts beside wide MLPs": {**EXPERTS, **E2B},
    },
    {
        "E2B": {
            "also": ("exactness", "depth", "windows", "chats"),
            "kept": Kept(
                ((0, "windowed"), (1, "growing"), (2, "windowed"), (3, "shared"), (4, "shared"), (5, "shared")),
                config={"vocab_size_per_layer_input": 260},
            ),
        },
        "experts": {
            "also": ("exactness",),
            "exact_with": {"num_hidden_layers": 2, "layer_types": ["sliding_attention", "full_attention"]},
        },
        "base": {"also": ("windows",)},
        "bidirectional in images": {"inert": "text is causal either way"},
        "bidirectional": {"refused": "use_bidirectional_attention"},
        "wide MLPs where none share": {"inert": "only sharing layers are wide"},
        "more rows than tokens": {"refused": "vocab_size_per_layer_input = 95"},
        "experts beside wide MLPs": {"refused": "use_double_wide_mlp: MLPs of two widths"},
    },
    oracles=(5,),
)
