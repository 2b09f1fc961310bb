"""Inkling 2 whose middle layers run several times, each time with messages of the last one.

Published: Inkling 2 Mini, with a tower for pictures (26B), whose experts in NVFP4 and MXFP8 are not read yet.
"""

from tests.families.cases.case import variants
from tests.families.cases.inkling2_text import INKLING2

CASES = variants(
    "inkling2_loop_text",
    {
        **INKLING2,
        "layer_types": ["hybrid_sliding", "hybrid", "hybrid_sliding", "hybrid", "hybrid"],
        "loop_layer_index_start": 2,
        "loop_layer_index_end": 4,
        "loop_num_passes": 3,
        "loop_gate_rank": 16,
    },
    {
        "one pass": {"loop_num_passes": 1},
        "two blocks run again": {
            "num_hidden_layers": 7,
            "layer_types": ["hybrid_sliding", "hybrid"] * 3 + ["hybrid"],
            "loop_layer_index_end": 6,
        },
        "to the last layer": {"num_hidden_layers": 4, "layer_types": ["hybrid_sliding", "hybrid"] * 2},
        "single layers": {"n_layers_per_attn_res_block": 1, "loop_layer_index_start": 3},
        "narrow gates": {"loop_gate_rank": 3},
    },
    {
        "base": {
            "off_device": "it has fixed states",
            "exact_with": {"num_experts_per_tok": 3, "moe_intermediate_size": 64, "loop_num_passes": 2},
        },
    },
    oracles=(5,),
    quiet="layers",
)
