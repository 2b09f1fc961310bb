"""Jais 2: Llama with LayerNorm, biases everywhere, and a squared ReLU without gate."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "jais2",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
    },
    {},
    oracles=(5,),
)
