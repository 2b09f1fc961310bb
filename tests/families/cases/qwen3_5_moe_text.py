"""Qwen3.5 MoE: Qwen3.5 with a mixture of experts in every layer, and one more that every token uses.

Published: 35B with 3B active (36 GB in int8, 22 GB in int4), with vision, of which the language model is exported.
"""

from tests.families.cases.case import CONTEXT, variants
from tests.families.cases.qwen3_5_text import ROPE

CASES = variants(
    "qwen3_5_moe_text",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 32,
        "num_hidden_layers": 4,
        "moe_intermediate_size": 32,
        "shared_expert_intermediate_size": 48,
        "num_experts": 4,
        "num_experts_per_tok": 2,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 4,
        "linear_key_head_dim": 16,
        "linear_value_head_dim": 16,
        "max_position_embeddings": CONTEXT,
        "rope_parameters": ROPE,
        "pad_token_id": 1,
    },
    {
        "tied": {"tie_word_embeddings": True},
        "one expert at a time": {"num_experts_per_tok": 1},
        "wider experts": {"moe_intermediate_size": 48},
        "attention first": {
            "layer_types": ["full_attention", "linear_attention", "linear_attention", "full_attention"]
        },
        "gelu": {"hidden_act": "gelu"},
    },
    {"base": {"off_device": "it has fixed states"}, "gelu": {"refused": "experts are supported with silu only"}},
    oracles=(5,),
)
