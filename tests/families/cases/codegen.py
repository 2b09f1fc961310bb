"""CodeGen: GPT-J whose queries, values and keys are fused in four shares."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "codegen",
    {"n_embd": 64, "n_head": 4, "n_layer": 2, "rotary_dim": 8, "n_positions": CONTEXT},
    {
        "8 heads": {"n_embd": 128, "n_head": 8},
        "whole heads rotate": {"rotary_dim": 16},
        "inner size": {"n_inner": 80},
        "tied": {"tie_word_embeddings": True},
    },
)
