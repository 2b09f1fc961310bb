"""GPT-2: learned positions, LayerNorm, fused QKV in [in, out]."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "gpt2",
    {"n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": CONTEXT},
    {
        "inner size": {"n_inner": 80},
        "gelu": {"activation_function": "gelu"},
        "gelu_pytorch_tanh": {"activation_function": "gelu_pytorch_tanh"},
        "relu": {"activation_function": "relu"},
        "silu": {"activation_function": "silu"},
        "unscaled attention": {"scale_attn_weights": False},
        "attention scaled by layer": {"scale_attn_by_inverse_layer_idx": True, "n_layer": 3},
        "epsilon": {"layer_norm_epsilon": 1e-2},
        "untied": {"tie_word_embeddings": False},
        "heads of 8": {"n_head": 8},
        "odd vocabulary": {"vocab_size": 101},
    },
    {
        "base": {"also": ("calibrated", "int4 KV", "groups"), "size": ("n_embd", 96), "aliases": ("gpt-sw3",)},
        "gelu_pytorch_tanh": {"inert": "another name of gelu_new"},
    },
)
