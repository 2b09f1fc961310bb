"""Ministral 3: Mistral with a scale of queries that grows with their position."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "ministral3",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
        "head_dim": 16,
        "rope_parameters": {
            "rope_type": "yarn",
            "rope_theta": 10000.0,
            "factor": 4.0,
            "original_max_position_embeddings": 24,
            "mscale": 1.0,
            "mscale_all_dim": 1.0,
            "llama_4_scaling_beta": 0.5,
        },
    },
    {
        "a faster scale": {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "original_max_position_embeddings": 24,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "llama_4_scaling_beta": 2.0,
            }
        },
        "no scale": {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "original_max_position_embeddings": 24,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "llama_4_scaling_beta": 0.0,
            }
        },
        "a context of one scale": {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 10000.0,
                "factor": 1.0,
                "original_max_position_embeddings": CONTEXT,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "llama_4_scaling_beta": 0.5,
            }
        },
        "window": {"sliding_window": 12},
        "tied": {"tie_word_embeddings": True},
        "multi-head": {"num_key_value_heads": 4},
        "heads wider than hidden": {"head_dim": 32},
        "heads of 8": {"head_dim": 8},
        "theta": {
            "rope_parameters": {
                "rope_type": "yarn",
                "rope_theta": 500.0,
                "factor": 4.0,
                "original_max_position_embeddings": 24,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "llama_4_scaling_beta": 0.5,
            }
        },
        "linear scaling": {
            "rope_parameters": {
                "rope_type": "linear",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "original_max_position_embeddings": 24,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "llama_4_scaling_beta": 0.5,
            }
        },
        "default scaling": {
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "factor": 4.0,
                "original_max_position_embeddings": 24,
                "mscale": 1.0,
                "mscale_all_dim": 1.0,
                "llama_4_scaling_beta": 0.5,
            }
        },
        "gelu": {"hidden_act": "gelu"},
        "epsilon": {"rms_norm_eps": 0.01},
    },
)
