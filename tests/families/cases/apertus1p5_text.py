"""Apertus 1.5: Apertus with tokens for pictures and sounds."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "apertus1p5_text",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
    },
    {"a smaller head": {"output_vocab_size": 64}},
    {"a smaller head": {"refused": "output_vocab_size = 64"}},
    oracles=(5,),
)
