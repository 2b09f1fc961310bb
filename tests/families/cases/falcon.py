"""Falcon: three layouts. 7b shares one key head and runs attention and MLP side by side; 40b groups its heads; rw uses
ALiBi, one block after the other, with biases."""

from tests.families.cases.case import CONTEXT, variants

_RW = {"alibi": True, "multi_query": False, "parallel_attn": False, "bias": True}
_NEW = {"new_decoder_architecture": True, "num_kv_heads": 2}

CASES = variants(
    "falcon",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "ffn_hidden_size": 96,
        "max_position_embeddings": CONTEXT,
    },
    {
        "biases": {"bias": True},
        "untied": {"tie_word_embeddings": False},
        "sequential": {"parallel_attn": False},
        "multi-head": {"multi_query": False},
        "multi-head, sequential": {"multi_query": False, "parallel_attn": False},
        "theta": {"rope_theta": 500.0},
        "linear scaling": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        "gelu_new": {"activation": "gelu_new"},
        "relu": {"activation": "relu"},
        "epsilon": {"layer_norm_epsilon": 1e-2},
        "multi-query with alibi": {"alibi": True},
        "new": _NEW,
        "new, two norms by name": _NEW | {"num_ln_in_parallel_attn": 2},
        "new, one norm": _NEW | {"num_ln_in_parallel_attn": 1},
        "new, as many key heads": _NEW | {"num_kv_heads": 4},
        "new, with biases": _NEW | {"bias": True},
        "rw": _RW,
        "rw, 3 heads": _RW | {"hidden_size": 48, "num_attention_heads": 3},
        "rw, 6 heads": _RW | {"hidden_size": 96, "num_attention_heads": 6},
        # Slopes of up to 8 heads, and their products with positions up to 256, are exact in bfloat16.
        "rw, 16 heads": _RW | {"hidden_size": 128, "num_attention_heads": 16},
        "rw, 300 positions": _RW | {"max_position_embeddings": 320},
        "rw, parallel": _RW | {"parallel_attn": True},
        "rw, no biases": _RW | {"bias": False},
    },
    {
        "base": {"also": ("exactness",)},
        "rw": {"also": ("hidden states",)},
        "rw, 300 positions": {"length": 300, "prompt": 240},
    },
)
