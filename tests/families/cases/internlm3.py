"""InternLM 3: Llama with other names for its biases, and frequencies that stretch with the context."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "internlm3",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
        "head_dim": 16,
    },
    {
        "biases": {"attention_bias": True, "mlp_bias": True},
        "multi-head": {"num_key_value_heads": 4},
        "heads wider than hidden": {"head_dim": 32},
        "tied": {"tie_word_embeddings": True},
        "theta": {"rope_parameters": {"rope_type": "default", "rope_theta": 500.0}},
        "dynamic scaling": {"rope_parameters": {"rope_type": "dynamic", "factor": 6.0, "rope_theta": 10000.0}},
        "gelu": {"hidden_act": "gelu"},
        "epsilon": {"rms_norm_eps": 1e-2},
    },
    {"dynamic scaling": {"inert": "no position is beyond those that it was trained for"}},
    oracles=(5,),
)
