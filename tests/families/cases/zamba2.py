"""Zamba2: Mamba-2 mixers, and blocks of attention and an MLP that layers share, with low-rank updates of each use.

Published: 1.2B (1.3 GB in int8, 0.8 GB in int4), 2.7B (2.8 and 1.7 GB), 7B (7.6 and 4.6 GB).
"""

from tests.families.cases.case import CONTEXT, variants
from tests.families.cases.kept import Kept, fixed

CASES = variants(
    "zamba2",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "num_hidden_layers": 6,
        "layers_block_type": ["mamba", "hybrid", "hybrid", "mamba", "hybrid", "hybrid"],
        "num_mem_blocks": 2,
        "intermediate_size": 96,
        "adapter_rank": 8,
        "n_mamba_heads": 4,
        "mamba_d_state": 16,
        "chunk_size": 8,
        "max_position_embeddings": CONTEXT,
    },
    {
        "one block": {"num_mem_blocks": 1},
        "a block for each use": {"num_mem_blocks": 4},
        "updated attention": {"use_shared_attention_adapter": True},
        "rotated": {"use_mem_rope": True},
        "rotated and updated": {"use_mem_rope": True, "use_shared_attention_adapter": True, "rope_theta": 500.0},
        "attention first": {"layers_block_type": ["hybrid", "mamba", "mamba", "hybrid", "mamba", "mamba"]},
        "biases": {"add_bias_linear": True},
        "groups": {"mamba_ngroups": 2},
        "width of the convolution": {"mamba_d_conv": 3},
        "longer steps": {"time_step_min": 0.2},
        "epsilon": {"rms_norm_eps": 0.01},
        "silu": {"hidden_act": "silu"},
        "long context": {"use_mem_rope": True, "use_long_context": True},
        "grouped": {"num_key_value_heads": 2},
    },
    {
        "base": {
            "config_classes": (4, 5),
            "off_device": "it has fixed states",
            "kept": Kept(
                (
                    *fixed(0, 1),
                    (1, "growing"),
                    *fixed(2),
                    (2, "growing"),
                    *fixed(3, 4),
                    (4, "growing"),
                    *fixed(5),
                    (5, "growing"),
                ),
                6 * (3 * (128 + 2 * 16) + 4 * 16 * 32) * 4,
                frozenset({b"LinearAttention"}),
            ),
        },
        "long context": {"refused": "use_long_context = True: its rotation for long contexts"},
        "grouped": {"refused": "num_key_value_heads = 2: every query head has keys"},
    },
    oracles=(5,),  # transformers 4 does not write blocks that are shared
    quiet="shared",
)
