"""Cohere: LayerNorm without bias, interleaved rotary positions, attention and MLP side by side, scaled logits."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "cohere",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
        "logit_scale": 0.5,
        "pad_token_id": 1,
    },
    {
        "logit scale": {"logit_scale": 1.0},
        "normalized q and k": {"use_qk_norm": True},
        "normalized q and k of grouped heads": {"use_qk_norm": True, "num_key_value_heads": 2},
        "grouped heads": {"num_key_value_heads": 2},
        "heads of 8": {"num_attention_heads": 8},
        "attention bias": {"attention_bias": True},
        "untied": {"tie_word_embeddings": False},
        "theta": {"rope_theta": 500.0},
        "linear scaling": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        "gelu": {"hidden_act": "gelu"},
        "epsilon": {"layer_norm_eps": 1e-2},
    },
)
