"""StableLM: LayerNorm, gated MLP, rotary positions on a quarter of each head, a norm for each head of q and k."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "stablelm",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
    },
    {
        "6 of 16 rotate": {"partial_rotary_factor": 0.4},
        "half of each head rotates": {"partial_rotary_factor": 0.5},
        "whole heads rotate": {"partial_rotary_factor": 1.0},
        "heads of 32": {"num_attention_heads": 2, "num_key_value_heads": 2},
        "biases on q, k and v": {"use_qkv_bias": True},
        "normalized q and k": {"qk_layernorm": True},
        "normalized q and k of grouped heads": {"qk_layernorm": True, "num_key_value_heads": 2},
        "parallel": {"use_parallel_residual": True},
        "grouped heads": {"num_key_value_heads": 2},
        "tied": {"tie_word_embeddings": True},
        "theta": {"rope_theta": 500.0},
        "linear scaling": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        "gelu": {"hidden_act": "gelu"},
        "epsilon": {"layer_norm_eps": 1e-2},
    },
)
