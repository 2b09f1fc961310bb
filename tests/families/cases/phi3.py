"""Phi-3: Llama with fused QKV and fused gate and up, a window, and rotary factors for short and long sequences."""

from tests.families.cases.case import CONTEXT, variants

_SHORT = [1.0, 1.05, 1.1, 1.2, 1.3, 1.5, 1.8, 2.0]
_LONG = [1.0, 1.2, 1.6, 2.4, 4.0, 6.0, 9.0, 12.0]

CASES = variants(
    "phi3",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
        "original_max_position_embeddings": CONTEXT,
        "pad_token_id": 1,
    },
    {
        "window": {"sliding_window": 12},
        "window beyond the context": {"sliding_window": 2047},
        "grouped heads": {"num_key_value_heads": 2},
        "12 of 16 rotate": {"partial_rotary_factor": 0.75},
        "tied": {"tie_word_embeddings": True},
        "theta": {"rope_theta": 500.0},
        "gelu": {"hidden_act": "gelu"},
        "epsilon": {"rms_norm_eps": 1e-2},
        "longrope, short": {
            "max_position_embeddings": 8 * CONTEXT,
            "rope_scaling": {"type": "longrope", "short_factor": _SHORT, "long_factor": _LONG},
        },
        "longrope, short, under its old name": {
            "max_position_embeddings": 8 * CONTEXT,
            "rope_scaling": {"type": "su", "short_factor": _SHORT, "long_factor": _LONG},
        },
        "longrope, short, 12 of 16 rotate": {
            "max_position_embeddings": 8 * CONTEXT,
            "partial_rotary_factor": 0.75,
            "rope_scaling": {"type": "longrope", "short_factor": _SHORT[:6], "long_factor": _LONG[:6]},
        },
        "longrope, long": {
            "original_max_position_embeddings": 12,
            "rope_scaling": {"type": "longrope", "short_factor": _SHORT, "long_factor": _LONG},
        },
    },
    {
        "window": {"also": ("windows",)},
        # Past the switch from one set of factors to the other: a bundle has one of them.
        "longrope, long": {"max_context": CONTEXT, "prompt": 20},
        "longrope, short, under its old name": {"oracles": (4,)},
        "window beyond the context": {"inert": "no query reaches so far"},
    },
)
