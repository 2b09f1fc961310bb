"""gpt-oss: attention sinks, a window in every second layer, experts with a clipped SwiGLU and biases."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "gpt_oss",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "max_position_embeddings": CONTEXT,
        "sliding_window": 12,
    },
    {
        "one expert per token": {"num_experts_per_tok": 1},
        "many experts": {"num_local_experts": 24, "num_experts_per_tok": 4},
        "heads of 64": {"head_dim": 64},
        "multi-query": {"num_key_value_heads": 1},
        "window in every layer": {"layer_types": ["sliding_attention"] * 2},
        "window in no layer": {"layer_types": ["full_attention"] * 2},
        "window beyond the context": {"sliding_window": 256},
        "no biases": {"attention_bias": False},
        "tied": {"tie_word_embeddings": True},
        "yarn of 4": {
            "rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24},
        },
        "epsilon": {"rms_norm_eps": 1e-2},
    },
    {
        "base": {"also": ("int4 KV",)},
    },
)
