"""AFMoE (Arcee's Trinity): layers whose attention has a window rotate, the others do not; attention has gates,
sublayers have norms behind them, and experts are weighed by sigmoids and chosen with a bias of each.

Published: Trinity Nano with 6B, 1B of them active (6.3 GB in int8, 3.8 GB in int4), Mini with 26B, 3B active (27 GB in
int8, 16 GB in int4).
"""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "afmoe",
    {
        "hidden_size": 64,
        "num_attention_heads": 6,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_hidden_layers": 4,
        "num_dense_layers": 1,
        "intermediate_size": 80,
        "moe_intermediate_size": 32,
        "num_experts": 8,
        "num_experts_per_tok": 3,
        "num_shared_experts": 1,
        "route_scale": 2.5,
        "sliding_window": 7,
        "mup_enabled": True,
        "max_position_embeddings": CONTEXT,
    },
    {
        "plain embeddings": {"mup_enabled": False},
        "full attention in every second layer": {"global_attn_every_n_layers": 2},
        "listed windows": {
            "layer_types": ["full_attention", "sliding_attention", "sliding_attention", "full_attention"]
        },
        "window beyond the context": {"sliding_window": 4096},
        "two shared experts": {"num_shared_experts": 2},
        "experts in every layer": {"num_dense_layers": 0},
        "no experts in any layer": {"num_dense_layers": 4},
        "tied": {"tie_word_embeddings": True},
    },
    oracles=(5,),
)
