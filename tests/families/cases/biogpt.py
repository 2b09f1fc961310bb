"""BioGPT: OPT's layers with GELU, learned positions with an offset of two, a scaled embedding, tied head."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "biogpt",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "intermediate_size": 80,
        "max_position_embeddings": CONTEXT,
        "pad_token_id": 1,
    },
    {
        "plain embedding": {"scale_embedding": False},
        "relu": {"hidden_act": "relu"},
        "epsilon": {"layer_norm_eps": 1e-2},
    },
    {"epsilon": {"inert": "its norms have the epsilon of torch, whatever the config says"}},
)
