"""OLMo 2: Llama whose norms stand after each block, with norms over the whole width of q and k."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "olmo2",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
        "pad_token_id": 1,
    },
    {
        "grouped heads": {"num_key_value_heads": 2},
        "multi-query": {"num_key_value_heads": 1},
        "heads of 8": {"num_attention_heads": 8},
        "attention bias": {"attention_bias": True},
        "tied": {"tie_word_embeddings": True},
        "theta": {"rope_theta": 500.0},
        "linear scaling": {"rope_scaling": {"type": "linear", "factor": 4.0}},
        "gelu": {"hidden_act": "gelu"},
        "epsilon": {"rms_norm_eps": 1e-2},
    },
)
