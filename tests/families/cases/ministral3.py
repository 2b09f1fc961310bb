"""Ministral 3: Mistral with a scale of queries that grows with their position; also the text model inside `mistral3`.

Published: 3B (3.5 GB in int8, 2.1 GB in int4), 8B (8.8 and 5.3 GB), 14B (14 and 8.4 GB).
"""

from dataclasses import replace
from typing import Any

from tests.families.cases.case import CONTEXT, variants

ROPE: dict[str, Any] = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 24,
    "llama_4_scaling_beta": 0.5,
}
MSCALE = {"mscale": 1.0, "mscale_all_dim": 1.0}

KNOWN = variants(
    "ministral3",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
        "rope_parameters": ROPE | MSCALE,
    },
    {
        "a faster scale": {"rope_parameters": ROPE | MSCALE | {"llama_4_scaling_beta": 2.0}},
        "no scale": {"rope_parameters": ROPE | MSCALE | {"llama_4_scaling_beta": 0.0}},
        "a context of one scale": {
            "rope_parameters": ROPE | MSCALE | {"original_max_position_embeddings": CONTEXT, "factor": 1.0}
        },
        "yarn of a larger scale": {"rope_parameters": ROPE},
        "linear scaling": {"rope_parameters": ROPE | {"rope_type": "linear"}},
        "window": {"sliding_window": 12},
        "tied": {"tie_word_embeddings": True},
        "multi-head": {"num_key_value_heads": 4},
        "heads wider than hidden": {"head_dim": 32},
        "heads of 8": {"head_dim": 8},
        "theta": {"rope_parameters": ROPE | MSCALE | {"rope_theta": 500.0}},
        "gelu": {"hidden_act": "gelu"},
        "epsilon": {"rms_norm_eps": 1e-2},
    },
)

CASES = [replace(case, oracles=(5,)) for case in KNOWN]
