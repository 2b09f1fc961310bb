"""Qwen3 with experts, which edgegen does not export."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "qwen3_moe",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "moe_intermediate_size": 32,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "max_position_embeddings": CONTEXT,
    },
    {"no experts in any layer": {"mlp_only_layers": [0, 1]}},
    {name: {"refused": "qwen3_moe"} for name in ("base", "no experts in any layer")},
)
