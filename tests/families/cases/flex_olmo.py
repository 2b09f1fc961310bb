"""FlexOlmo: OLMo 2 with experts."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "flex_olmo",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 2,
        "intermediate_size": 48,
        "num_experts": 6,
        "num_experts_per_tok": 3,
        "max_position_embeddings": CONTEXT,
        "pad_token_id": 1,
    },
    {
        "weights that add up to one": {"norm_topk_prob": True},
        "grouped heads": {"num_key_value_heads": 2},
        "tied": {"tie_word_embeddings": True},
    },
    {"weights that add up to one": {"inert": "the norm behind the experts takes the scale of their sum away"}},
)
