"""OPT: learned positions from row 2 on; 350m normalizes after each block and embeds in another width."""

from tests.families.cases.case import CONTEXT, variants

CASES = variants(
    "opt",
    {
        "hidden_size": 64,
        "word_embed_proj_dim": 64,
        "ffn_dim": 96,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "max_position_embeddings": CONTEXT,
        "pad_token_id": 1,
    },
    {
        "norm after": {"do_layer_norm_before": False},
        "350m": {"do_layer_norm_before": False, "word_embed_proj_dim": 32},
        "projected": {"word_embed_proj_dim": 32},
        "no final norm": {"_remove_final_layer_norm": True},
        "no biases": {"enable_bias": False},
        "norms without weights": {"layer_norm_elementwise_affine": False},
        "gelu": {"activation_function": "gelu"},
        "untied": {"tie_word_embeddings": False},
        "untied and projected": {"tie_word_embeddings": False, "word_embed_proj_dim": 32},
    },
    {
        "350m": {"also": ("hidden states",)},
        "projected": {"also": ("hidden states",)},
        "untied and projected": {"also": ("hidden states",)},
        "no final norm": {"also": ("hidden states",)},
    },
)
