"""CWM: Llama with a sliding window in all layers but the first, fifth, ninth and so on."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "cwm",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 6,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
        "head_dim": 16,
        "sliding_window": 12,
    },
    {"other layers": {"layer_types": ["sliding_attention", "full_attention"] * 3}},
    oracles=(5,),
)
