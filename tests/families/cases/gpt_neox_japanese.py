"""GPT-NeoX Japanese: sequential blocks, no biases but one behind the last attention, tied head."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "gpt_neox_japanese",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "intermediate_multiple_size": 2,
        "max_position_embeddings": CONTEXT,
    },
    {
        "half of each head rotates": {"rotary_pct": 0.5},
        "relu": {"hidden_act": "relu"},
        "epsilon": {"layer_norm_eps": 1e-2},
    },
    {
        "base": {"config_classes": (4, 5)},
    },
    oracles=(5,),
)
