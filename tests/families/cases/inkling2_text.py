"""Inkling 2: Inkling with residuals that attend to blocks of layers, gates and sinks of queries, dynamic convolutions.

Published: Inkling 2 Small, with a tower for pictures (590B), whose 384 experts in 48 layers are refused: a graph cannot
hold so many.
"""

from tests.families.cases.case import CONTEXT, variants

INKLING2 = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "swa_num_attention_heads": 8,
    "swa_num_key_value_heads": 2,
    "swa_head_dim": 8,
    "sliding_window_size": 12,
    "d_rel": 5,
    "rel_extent": 20,
    "num_hidden_layers": 5,
    "n_layers_per_attn_res_block": 2,
    "layer_types": ["hybrid_sliding", "hybrid", "hybrid_sliding", "hybrid_sliding", "hybrid"],
    "moe_intermediate_size": 32,
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "route_scale": 2.0,
    "log_scaling_n_floor": 10,
    "log_scaling_alpha": 0.8,
    "unpadded_vocab_size": 96,
    "max_position_embeddings": CONTEXT,
}

CASES = variants(
    "inkling2_text",
    INKLING2,
    {
        "queries as they are": {"log_scaling_n_floor": 500},
        "shorter heads": {"qk_l2_clip_threshold": 2.0, "rel_l2_clip_threshold": 1.5},
        "narrow convolutions": {"conv_kernel_size": 2},
        "one block": {"n_layers_per_attn_res_block": 6},
        "a block for each layer": {"n_layers_per_attn_res_block": 1},
        "every sixth layer whole": {"layer_types": None, "n_layers_per_attn_res_block": 3},
        "softcaps": {"mlp_gate_softcap": 0.5, "mlp_up_softcap": 1.5, "final_logit_softcapping": 5.0},
        "three experts": {"num_experts_per_tok": 3, "route_scale": 0.5},
        "epsilon": {"rms_norm_eps": 0.01},
    },
    {
        "base": {"no_defaults": "18432 experts in all layers, at most 8192", "off_device": "it has fixed states"},
    },
    oracles=(5,),
    quiet="layers",
)
