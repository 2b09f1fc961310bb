"""EXAONE 3 and 3.5: Llama whose keys and tensors have other names."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "exaone",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
    },
    {"tied": {"tie_word_embeddings": True}},
    oracles=(5,),
)
