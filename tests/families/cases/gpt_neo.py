"""GPT-Neo: global and local layers by turns, attention not scaled, no biases on q, k, v."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "gpt_neo",
    {
        "hidden_size": 64,
        "num_heads": 4,
        "num_layers": 4,
        "attention_types": [[["global", "local"], 2]],
        "window_size": 12,
        "max_position_embeddings": CONTEXT,
    },
    {
        "all global": {"attention_types": [[["global"], 4]]},
        "local first": {"attention_types": [[["local"], 1], [["global", "local", "local"], 1]]},
        "window of 1": {"window_size": 1},
        "window beyond the context": {"window_size": 256},
        "inner size": {"intermediate_size": 80},
        "relu": {"activation_function": "relu"},
        "gelu": {"activation_function": "gelu"},
        "epsilon": {"layer_norm_epsilon": 1e-2},
        "untied": {"tie_word_embeddings": False},
    },
    {
        "base": {
            "also": ("windows", "batches"),
            "heads": ("num_heads", 4),
            "deep": {"attention_types": [[["global", "local"], 6]]},
        },
    },
    quiet="q_proj",  # its scores are not scaled
)
