"""nanochat: norms without weights, QK norm after a rotation that turns backwards, a squared ReLU, capped logits."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "nanochat",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
    },
    {
        "every head its own key": {"num_key_value_heads": None},
        "one key head": {"num_key_value_heads": 1},
        "attention bias": {"attention_bias": True},
        "logits without cap": {"final_logit_softcapping": None},
        "lower cap": {"final_logit_softcapping": 3.0},
        "gelu": {"hidden_act": "gelu"},
        "tied": {"tie_word_embeddings": True},
        "epsilon": {"rms_norm_eps": 0.1},
        "theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}},
        "linear scaling": {"rope_parameters": {"rope_type": "linear", "factor": 4.0, "rope_theta": 10000.0}},
        "heads of 8": {"num_attention_heads": 8, "num_key_value_heads": 4},
    },
    oracles=(5,),
)
