"""HRM-Text: two stacks of layers that take turns, in several passes each, with gated attention and plain norms.

Published: 1B as a prefix language model, which is refused (1.2 GB in int8, 0.7 GB in int4).
"""

from tests.families.cases.case import CONTEXT, variants
from tests.families.cases.kept import Kept

CASES = variants(
    "hrm_text",
    {
        "hidden_size": 64,
        "num_attention_heads": 4,
        "head_dim": 16,
        "num_hidden_layers": 2,
        "intermediate_size": 96,
        "max_position_embeddings": CONTEXT,
        "H_cycles": 2,
        "L_cycles": 3,
        "prefix_lm": False,
        "initializer_range": 0.5,
    },
    {
        "one pass of each": {"H_cycles": 1, "L_cycles": 1},
        "as many low passes as high ones": {"L_cycles": 1},
        "one layer in each": {"num_hidden_layers": 1},
        "scale of the embedding": {"embedding_scale": 1.5},
        "tied": {"tie_word_embeddings": True, "embedding_scale": 0.6},
        "biases": {"attention_bias": True, "mlp_bias": True},
        "epsilon": {"rms_norm_eps": 0.01},
        "gelu": {"hidden_act": "gelu"},
        "prefix": {"prefix_lm": True},
    },
    {
        "base": {
            "no_defaults": "prefix_lm = True: its attention to the prompt is not causal",
            "kept": Kept(tuple((i, "growing") for i in range(16))),
        },
        "prefix": {"refused": "prefix_lm = True: its attention to the prompt is not causal"},
    },
    oracles=(5,),
    quiet="_module",
)
