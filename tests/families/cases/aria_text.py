"""Aria's language model: Llama with experts, stored with an axis of their own, and shared ones."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "aria_text",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "intermediate_size": 32,
        "moe_num_experts": 6,
        "moe_topk": 3,
        "max_position_embeddings": CONTEXT,
        "pad_token_id": 1,
    },
    {
        "one shared expert": {"moe_num_shared_experts": 1},
        "heads of another size": {"head_dim": 24},
    },
    {
        "base": {"config_classes": (4, 5)},
    },
    oracles=(5,),
)
