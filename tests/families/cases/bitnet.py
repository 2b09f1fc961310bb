"""BitNet b1.58: Llama with norms before its output projections and a squared ReLU; its layers' matrices are ternary.

Where an activation is near a tie of rounding, the last bit of a sum decides, and logits jump: sequences are short, and
seeds chosen so that none is.

Published: 2B-4T (0.9 GB in int8 and int4).
"""

from dataclasses import replace

from tests.families.cases.case import CONTEXT, variants

SIZES = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "intermediate_size": 96,
    "max_position_embeddings": CONTEXT,
}
ONLINE = {"quant_method": "bitnet", "linear_class": "autobitlinear", "quantization_mode": "online"}

CASES = [
    replace(case, length=24, generated=32)
    for case in variants(
        "bitnet",
        {**SIZES, "quantization_config": ONLINE},
        {
            "multi-head": {"num_key_value_heads": 4},
            "attention bias": {"attention_bias": True},
            "tied": {"tie_word_embeddings": True},
            "theta": {"rope_theta": 500.0},
            "yarn": {"rope_scaling": {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24}},
            "silu": {"hidden_act": "silu"},
            "epsilon": {"rms_norm_eps": 1e-2},
        },
        {"base": {"shallow": "it rounds activations, which twelve layers of random weights take over some tie"}},
    )
] + [replace(case, name="not ternary", also=("depth",)) for case in variants("bitnet", SIZES, {})]
