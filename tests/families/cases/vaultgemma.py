"""VaultGemma: Gemma 2 without norms after attention and MLP."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "vaultgemma",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
        "head_dim": 16,
        "query_pre_attn_scalar": 16,
        "sliding_window": 12,
    },
    {},
    oracles=(5,),
)
