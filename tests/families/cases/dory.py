"""Dory: an nGPT with sliding windows and gated attention, whose middle layers run several times.

Published: 4B (4.3 GB in int8, 2.7 GB in int4).
"""

from tests.families.cases.case import CONTEXT, variants
from tests.families.cases.kept import Kept

CASES = variants(
    "dory",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_hidden_layers": 4,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
        "sliding_window": 7,
        "layer_types": ["sliding_attention", "full_attention", "sliding_attention", "full_attention"],
        "n_input_layers": 1,
        "n_output_layers": 1,
        "initializer_range": 1.0,
        "ngpt_alpha_init": 0.5,
    },
    {
        "three passes": {"n_recurrent_loops": 3},
        "one pass": {"n_recurrent_loops": 1},
        "all layers again": {"n_input_layers": 0, "n_output_layers": 0},
        "one layer again": {"n_input_layers": 1, "n_recurrent_layers": 1, "n_output_layers": 2},
        "every fourth layer full": {"layer_types": None},
        "other bases": {
            "rope_parameters": {
                "sliding_attention": {"rope_type": "default", "rope_theta": 500.0},
                "full_attention": {"rope_type": "linear", "factor": 2.0, "rope_theta": 1000.0},
            }
        },
        "biases": {"attention_bias": True, "mlp_bias": True},
        "multi-head": {"num_key_value_heads": 4},
        "gelu": {"hidden_act": "gelu"},
        "initial deviation": {"initializer_range": 1.5},
        "rates": {"ngpt_alpha_init": 0.3},
        "tied": {"tie_word_embeddings": True},
        "the last cache": {"recurrent_kv_cache_mode": "last_loop"},
    },
    {
        "base": {
            "kept": Kept(
                tuple((i, "growing" if i % 2 else "windowed") for i in range(6)),
                operators=frozenset({b"RotaryEmbedding"}),
            )
        },
        "tied": {"refused": "tie_word_embeddings = True: the head has a scale for each token"},
        "the last cache": {"refused": "recurrent_kv_cache_mode: only per_loop is supported"},
    },
    oracles=(5,),
)
