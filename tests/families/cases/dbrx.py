"""DBRX: LayerNorm without a bias, clamped q, k and v, and experts that are stored one below the other."""

from tests.families.cases.case import CONTEXT, variants

ATTENTION = {"kv_n_heads": 2, "clip_qkv": 8.0, "rope_theta": 10000.0}
EXPERTS = {"ffn_hidden_size": 32, "moe_num_experts": 6, "moe_top_k": 3}

CASES = variants(
    "dbrx",
    {
        "d_model": 64,
        "n_heads": 4,
        "n_layers": 2,
        "max_seq_len": CONTEXT,
        "attn_config": ATTENTION,
        "ffn_config": EXPERTS,
    },
    {
        "one key head": {"attn_config": {**ATTENTION, "kv_n_heads": 1}},
        "clamped hard": {"attn_config": {**ATTENTION, "clip_qkv": 0.5}},
        "another base": {
            "attn_config": {**ATTENTION, "rope_theta": 500000.0},
            "rope_parameters": {"rope_type": "default", "rope_theta": 500000.0},
        },
        "weights as they are": {"ffn_config": {**EXPERTS, "moe_normalize_expert_weights": None}},
        "euclidean norm": {"ffn_config": {**EXPERTS, "moe_normalize_expert_weights": 2.0}},
    },
    {
        "base": {"size": ("d_model", 256), "config_classes": (4, 5)},
        "euclidean norm": {"refused": r"ffn_config\.moe_normalize_expert_weights = 2\.0"},
    },
    oracles=(5,),
)
