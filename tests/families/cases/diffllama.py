"""DiffLlama: Llama with differential attention.

Published: 0.3B (0.4 GB in int8, 0.3 GB in int4).
"""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "diffllama",
    {
        "hidden_size": 64,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "num_hidden_layers": 3,
        "intermediate_size": 80,
        "max_position_embeddings": CONTEXT,
    },
    {
        "as many keys as queries": {"num_key_value_heads": 8},
        "one pair of keys": {"num_key_value_heads": 2},
        "wide heads": {"head_dim": 24},
        "attention bias": {"attention_bias": True},
        "theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
        "linear scaling": {"rope_parameters": {"rope_type": "linear", "factor": 2.0, "rope_theta": 10000.0}},
        "epsilon": {"rms_norm_eps": 1e-2},
        "tied": {"tie_word_embeddings": True},
    },
    {"base": {"also": ("exactness",)}},
    oracles=(5,),
)
