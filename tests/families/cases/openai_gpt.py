"""GPT (the first): GPT-2's tensors, and norms after the sum with each sublayer."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "openai-gpt",
    {"n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": CONTEXT},
    {
        "relu": {"afn": "relu"},
        "silu": {"afn": "silu"},
        "3 heads": {"n_embd": 48, "n_head": 3},
        "epsilon": {"layer_norm_epsilon": 1e-2},
    },
    {
        "base": {"also": ("exactness",), "config_classes": (4, 5)},
    },
    oracles=(5,),
)
