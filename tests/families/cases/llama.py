"""Llama: RMSNorm, rotary positions, grouped heads, gated MLP."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "llama",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
    },
    {
        "multi-head": {"num_key_value_heads": 4},
        "multi-query": {"num_key_value_heads": 1},
        "tied": {"tie_word_embeddings": True},
        "attention bias": {"attention_bias": True},
        "mlp bias": {"mlp_bias": True},
        "heads wider than hidden": {"head_dim": 32},
        "heads narrower than hidden": {"num_attention_heads": 2, "head_dim": 16},
        "heads of 8": {"num_attention_heads": 8, "num_key_value_heads": 4},
        "heads of 24": {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 24},
        "theta": {"rope_theta": 500.0},
        "epsilon": {"rms_norm_eps": 1e-2},
        "gelu": {"hidden_act": "gelu"},
        "gelu_pytorch_tanh": {"hidden_act": "gelu_pytorch_tanh"},
        "relu": {"hidden_act": "relu"},
        "linear scaling": {"rope_scaling": {"rope_type": "linear", "factor": 4.0}},
        "linear scaling under its old key": {"rope_scaling": {"type": "linear", "factor": 4.0}},
        "default scaling": {"rope_scaling": {"rope_type": "default"}},
        "dynamic scaling": {"rope_scaling": {"rope_type": "dynamic", "factor": 4.0}},
        "dynamic scaling, stretched": {
            "max_position_embeddings": 24,
            "rope_scaling": {"rope_type": "dynamic", "factor": 4.0},
        },
        "yarn": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24}},
        "yarn without truncation": {
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 24,
                "truncate": False,
                "beta_fast": 4.0,
                "beta_slow": 0.5,
            }
        },
        "yarn of an attention factor": {
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 24,
                "attention_factor": 1.5,
            }
        },
        "yarn of mscale": {
            "rope_scaling": {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 24,
                "mscale": 2.0,
                "mscale_all_dim": 0.5,
            }
        },
        "llama3 scaling": {
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 48,
            }
        },
        "llama3 scaling of heads of 8": {
            "num_attention_heads": 8,
            "num_key_value_heads": 4,
            "rope_scaling": {
                "rope_type": "llama3",
                "factor": 8.0,
                "low_freq_factor": 1.0,
                "high_freq_factor": 4.0,
                "original_max_position_embeddings": 48,
            },
        },
        "tensor parallel pretraining": {"pretraining_tp": 2},
    },
    {
        "base": {"also": ("calibrated",)},
        "default scaling": {"inert": "that is none"},
        "dynamic scaling": {"inert": "it begins beyond max_position_embeddings"},
        # Its base depends on the length of the text, so that only texts of one length can be compared.
        "dynamic scaling, stretched": {"max_context": CONTEXT, "length": CONTEXT, "prompt": CONTEXT, "generated": 1},
        "tensor parallel pretraining": {"inert": "LlamaModel does not read it any more"},
    },
)
