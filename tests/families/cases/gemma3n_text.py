"""Gemma 3n: several residual streams (AltUp), learned residuals (LAuReL), embeddings of each layer, sparse MLPs in the
first layers, and shared KV caches in the last ones.

Published: E2B and E4B; of their checkpoints, which see and hear, the language model is exported.
"""

from tests.families.cases.case import CONTEXT, variants
from tests.families.cases.kept import Kept

E2B = {
    "hidden_size_per_layer_input": 32,
    "num_hidden_layers": 6,
    "layer_types": ["sliding_attention", "full_attention"] * 3,
    "num_kv_shared_layers": 3,
    "activation_sparsity_pattern": [0.95, 0.9, 0.0, 0.0, 0.0, 0.0],
    "num_key_value_heads": 1,
}
"""As the published models are: the first MLPs are sparse, and the last half of the layers shares keys and values."""

CASES = variants(
    "gemma3n_text",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 16,
        "num_hidden_layers": 4,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
        "sliding_window": 12,
        "layer_types": ["sliding_attention", "full_attention"] * 2,
        "hidden_size_per_layer_input": 8,
        "vocab_size_per_layer_input": 96,
        "num_kv_shared_layers": 0,
        "laurel_rank": 8,
        "rope_theta": 10000.0,
        "rope_local_base_freq": 100.0,
        "pad_token_id": 1,
    },
    {
        "pattern of 5": {"layer_types": None, "num_hidden_layers": 5},
        "last layer with a window": {"layer_types": ["full_attention", "sliding_attention"] * 2},
        "two streams": {"altup_num_inputs": 2},
        "five streams": {"altup_num_inputs": 5},
        "second stream active": {"altup_active_idx": 1},
        "last stream active, unscaled": {"altup_active_idx": 3, "altup_correct_scale": False},
        "unscaled": {"altup_correct_scale": False},
        "residual of rank 24": {"laurel_rank": 24},
        "sparse MLPs, one cut off at its mean": {"activation_sparsity_pattern": [0.95, 0.5, 0.0, 0.3]},
        "MLPs of several widths": {"intermediate_size": [96, 64, 96, 132]},
        "sparse MLPs of several widths": {
            "intermediate_size": [88, 64, 96, 132],
            "activation_sparsity_pattern": [0.7, 0.0, 0.8, 0.9],
        },
        "shared keys and values": {"num_kv_shared_layers": 2},
        "wide table": {"vocab_size_per_layer_input": 112},
        "wide embeddings of layers": {"hidden_size_per_layer_input": 24},
        "heads of 24": {"head_dim": 24},
        "one key head": {"num_key_value_heads": 1},
        "hidden size 96": {"hidden_size": 96},
        "scaled rotation": {"rope_scaling": {"rope_type": "linear", "factor": 8.0}},
        "one rotation": {"rope_local_base_freq": 10000.0},
        "capped logits": {"final_logit_softcapping": 6.0},
        "attention bias": {"attention_bias": True},
        "untied": {"tie_word_embeddings": False},
        "gelu": {"hidden_activation": "gelu"},
        "epsilon": {"rms_norm_eps": 1e-2},
        "E2B": E2B,
        "E2B with one kind shared": {**E2B, "num_kv_shared_layers": 1},
        "E2B with heads of 24": {**E2B, "head_dim": 24},
        "one stream": {"altup_num_inputs": 1},
    },
    {
        "E2B": {
            "also": ("exactness", "depth", "int4 KV", "windows", "hidden states"),
            "kept": Kept(
                ((0, "windowed"), (1, "growing"), (2, "windowed"), (3, "shared"), (4, "shared"), (5, "shared")),
                config={"vocab_size_per_layer_input": 250},
            ),
        },
        "base": {"also": ("windows",)},
        "one stream": {"refused": "altup_num_inputs = 1"},
    },
)
