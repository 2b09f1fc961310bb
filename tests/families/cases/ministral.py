"""Ministral: Mistral whose layers have a window where the file says so."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "ministral",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
        "head_dim": 16,
        "sliding_window": 12,
        "layer_types": ["full_attention", "sliding_attention"],
    },
    {"every layer": {"layer_types": None}},
    oracles=(5,),
)
