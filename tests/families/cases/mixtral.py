"""Mixtral: Mistral with experts, which edgegen does not export."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "mixtral",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "num_local_experts": 4,
        "max_position_embeddings": CONTEXT,
    },
    {},
    {"base": {"refused": "mixtral"}},
)
