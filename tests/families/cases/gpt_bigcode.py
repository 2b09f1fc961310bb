"""GPT-BigCode: GPT-2 with one shared key head, its matrices [out, in]; with many, QKV fused head by head."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "gpt_bigcode",
    {"n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": CONTEXT},
    {
        "multi-head": {"multi_query": False},
        "inner size": {"n_inner": 80},
        "unscaled attention": {"scale_attn_weights": False},
        "softmax in the model's own precision": {"attention_softmax_in_fp32": False},
        "gelu": {"activation_function": "gelu"},
        "relu": {"activation_function": "relu"},
        "untied": {"tie_word_embeddings": False},
        "epsilon": {"layer_norm_epsilon": 1e-2},
    },
    {
        "base": {"size": ("n_embd", 96)},
        "softmax in the model's own precision": {"inert": "that is float32 here"},
    },
)
