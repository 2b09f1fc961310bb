"""LFM3: short convolutions, sliding windows and full attention, a gate for each head, norms behind each sublayer.

Published: 1.7B (1.8 GB in int8, 1.1 GB in int4); with vision 2B, of which the language model is exported.
"""

from tests.families.cases.case import CONTEXT, variants
from tests.families.cases.kept import Kept

_SLIDING = {"rope_type": "default", "rope_theta": 100.0}
_FULL = {"rope_type": "proportional", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}

CASES = variants(
    "lfm3",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_hidden_layers": 5,
        "intermediate_size": 96,
        "layer_types": ["conv", "conv", "full_attention", "conv", "sliding_attention"],
        "sliding_window": 12,
        "rope_parameters": {"sliding_attention": _SLIDING, "full_attention": _FULL},
        "max_position_embeddings": CONTEXT,
        "pad_token_id": 1,
    },
    {
        "layers as they come": {"layer_types": None, "num_hidden_layers": 7},
        "no gate": {"use_attention_gate": False},
        "no norms behind": {"use_sandwich_norm": False},
        "plain": {"use_attention_gate": False, "use_sandwich_norm": False},
        "no windows": {"layer_types": ["conv", "full_attention"] * 2 + ["conv"]},
        "windows alone": {"layer_types": ["conv", "sliding_attention"] * 2 + ["conv"]},
        "window": {"sliding_window": 30},
        "width 2": {"conv_L_cache": 2},
        "bias of convolutions": {"conv_bias": True},
        "attention bias": {"attention_bias": True},
        "heads of 24": {"head_dim": 24},
        "multi-head": {"num_key_value_heads": 4},
        "all pairs turn": {
            "rope_parameters": {
                "sliding_attention": _SLIDING,
                "full_attention": {**_FULL, "partial_rotary_factor": 1.0},
            }
        },
        "windows rotate in part": {"rope_parameters": {"sliding_attention": _FULL, "full_attention": _SLIDING}},
        "theta": {"rope_parameters": {"sliding_attention": _SLIDING, "full_attention": {**_FULL, "rope_theta": 50.0}}},
        "linear scaling": {
            "rope_parameters": {
                "sliding_attention": _SLIDING,
                "full_attention": {"rope_type": "linear", "rope_theta": 10000.0, "factor": 4.0},
            }
        },
        "untied": {"tie_word_embeddings": False},
        "epsilon": {"norm_eps": 1e-2},
        "a single token": {"conv_L_cache": 1},
        "part of a plain rotation": {
            "rope_parameters": {
                "sliding_attention": {**_SLIDING, "partial_rotary_factor": 0.5},
                "full_attention": _FULL,
            }
        },
    },
    {
        "base": {
            "also": ("chats", "denormals"),
            "off_device": "it has fixed states",
            "kept": Kept(
                ((0, "fixed"), (1, "fixed"), (2, "growing"), (3, "fixed"), (4, "windowed")),
                3 * 6 * 64 * 4,
                rolled_back=True,
            ),
        },
        "a single token": {"refused": "at least 2 expected"},
        "part of a plain rotation": {"refused": "partial_rotary_factor: understood with rope_type = 'proportional'"},
    },
    oracles=(5,),
)
