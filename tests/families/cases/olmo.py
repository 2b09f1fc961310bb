"""OLMo: Llama with norms that have no weights; q, k and v may be clipped."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "olmo",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
        "pad_token_id": 1,
    },
    {
        "clipped": {"clip_qkv": 1.0},
        "clipped, with attention bias": {"clip_qkv": 1.0, "attention_bias": True},
        "grouped heads": {"num_key_value_heads": 2},
        "clipped grouped heads": {"num_key_value_heads": 2, "clip_qkv": 1.0},
        "attention bias": {"attention_bias": True},
        "tied": {"tie_word_embeddings": True},
        "theta": {"rope_theta": 500.0},
        "linear scaling": {"rope_scaling": {"type": "linear", "factor": 4.0}},
        "gelu": {"hidden_act": "gelu"},
    },
)
