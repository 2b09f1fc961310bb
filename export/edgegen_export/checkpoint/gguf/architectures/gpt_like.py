"""GPT-2 and its relatives: queries, keys and values mostly in one matrix, an MLP without a gate."""

from collections.abc import Mapping
from dataclasses import replace

from edgegen_export.checkpoint.gguf import config_rules as rule
from edgegen_export.checkpoint.gguf.architecture import (
    LAYER_NORM_EPS,
    RMS_NORM_EPS,
    SIZES,
    GgufArchitecture,
    Modules,
    gated,
)
from edgegen_export.checkpoint.gguf.config_rules import Entries
from edgegen_export.checkpoint.gguf.layouts import InputFirst, PerGroup
from edgegen_export.checkpoint.gguf.metadata_reader import MetadataReader

_TOP: Modules = {"token_embd": "transformer.wte", "output_norm": "transformer.ln_f", "output": "lm_head"}


def _one_key_per_query(read: MetadataReader) -> Entries:
    read.refuse("attention.head_count_kv", (read.heads.queries,), "as many keys as queries are expected here")
    return {}


GPT2 = GgufArchitecture(
    model_type="gpt2",
    integers={
        "context_length": "n_positions",
        "embedding_length": "n_embd",
        "block_count": "n_layer",
        "feed_forward_length": "n_inner",
        "attention.head_count": "n_head",
    },
    reals={LAYER_NORM_EPS: "layer_norm_epsilon"},
    layer={
        "attn_norm": "ln_1",
        "attn_qkv": InputFirst("attn.c_attn"),
        "attn_output": InputFirst("attn.c_proj"),
        "ffn_norm": "ln_2",
        "ffn_up": InputFirst("mlp.c_fc"),
        "ffn_down": InputFirst("mlp.c_proj"),
    },
    top={**_TOP, "position_embd": "transformer.wpe"},
    prefix="transformer.h.{i}.",
    rules=(_one_key_per_query,),
)


def _rotated(read: MetadataReader) -> Entries:
    read.refuse("rope.freq_base", (10000.0,), "this architecture has no other than 10000")
    return {"rotary_dim": read.integer("rope.dimension_count", read.heads.size)}


GPTJ = replace(
    GPT2,
    model_type="gptj",
    layer={
        "attn_norm": "ln_1",
        **{f"attn_{x}": f"attn.{x}_proj" for x in "qkv"},
        "attn_output": "attn.out_proj",
        "ffn_up": "mlp.fc_in",
        "ffn_down": "mlp.fc_out",
    },
    top=_TOP,
    rules=(_one_key_per_query, _rotated),
)


def _multi_query(read: MetadataReader) -> Entries:
    return {"multi_query": read.heads.keys == 1}


STARCODER = replace(
    GPT2,
    model_type="gpt_bigcode",
    layer={
        "attn_norm": "ln_1",
        "attn_qkv": "attn.c_attn",
        "attn_output": "attn.c_proj",
        "ffn_norm": "ln_2",
        "ffn_up": "mlp.c_fc",
        "ffn_down": "mlp.c_proj",
    },
    rules=(_multi_query,),
)

_FALCON_TOP: Modules = {**_TOP, "token_embd": "transformer.word_embeddings"}
_FALCON_LAYER: Modules = {
    "attn_norm": "input_layernorm",
    "attn_qkv": PerGroup("self_attention.query_key_value"),
    "attn_output": "self_attention.dense",
    "ffn_up": "mlp.dense_h_to_4h",
    "ffn_down": "mlp.dense_4h_to_h",
}
_TWO_NORMS: Modules = {"attn_norm": "ln_mlp", "attn_norm_2": "ln_attn"}


def _falcon(read: MetadataReader) -> Entries:
    """The 7B has one key for all queries; every later model is of the new kind, with one norm or two."""
    read.refuse("tensor_data_layout", ("jploski",), "this arrangement of queries, keys and values is not known")
    new = read.heads.keys > 1
    norms = {"num_ln_in_parallel_attn": 2 if read.has("blk.{i}.attn_norm_2.weight") else 1} if new else {}
    return {"num_kv_heads": read.heads.keys, "new_decoder_architecture": new, "multi_query": not new, **norms}


_FALCON = GgufArchitecture(
    model_type="falcon",
    integers={**SIZES, "feed_forward_length": "ffn_hidden_size"},
    reals={LAYER_NORM_EPS: "layer_norm_epsilon"},
    layer=_FALCON_LAYER,
    top=_FALCON_TOP,
    prefix="transformer.h.{i}.",
    rules=(rule.full_rotary, _falcon),
    constants={"parallel_attn": True, "bias": False, "alibi": False},
)
FALCON = replace(
    _FALCON,
    variant=("blk.{i}.attn_norm_2.weight", replace(_FALCON, layer={**_FALCON_LAYER, **_TWO_NORMS})),
)


def _four_times_wide(read: MetadataReader) -> Entries:
    read.refuse("feed_forward_length", (4 * read.hidden_size,), "this architecture always has four times the width")
    return {}


BLOOM = replace(
    _FALCON,
    model_type="bloom",
    integers={
        "context_length": "seq_length",
        "embedding_length": "hidden_size",
        "block_count": "n_layer",
        "attention.head_count": "n_head",
    },
    layer={**_FALCON_LAYER, "ffn_norm": "post_attention_layernorm"},
    top={**_FALCON_TOP, "token_embd_norm": "transformer.word_embeddings_layernorm"},
    rules=(_one_key_per_query, _four_times_wide),
    constants={},
)


def _mpt(read: MetadataReader) -> Entries:
    """Return the entries of ``attn_config``, which is inside the config."""
    most = read.real("attention.max_alibi_bias", 0.0)
    inside: Entries = {"alibi": most > 0} | ({"alibi_bias_max": most} if most else {})
    if limit := read.real("attention.clamp_kqv", 0.0):
        inside["clip_qkv"] = limit
    return {"attn_config": inside}


MPT = GgufArchitecture(
    model_type="mpt",
    integers={
        "context_length": "max_seq_len",
        "embedding_length": "d_model",
        "block_count": "n_layers",
        "attention.head_count": "n_heads",
    },
    reals={LAYER_NORM_EPS: "layer_norm_epsilon"},
    layer={
        "attn_norm": "norm_1",
        "attn_qkv": "attn.Wqkv",
        "attn_output": "attn.out_proj",
        "ffn_norm": "norm_2",
        "ffn_up": "ffn.up_proj",
        "ffn_down": "ffn.down_proj",
    },
    top={**_TOP, "output_norm": "transformer.norm_f"},
    prefix="transformer.blocks.{i}.",
    rules=(_one_key_per_query, _four_times_wide, _mpt),
)


def _qwen(read: MetadataReader) -> Entries:
    read.refuse("rope.dimension_count", (read.heads.size,), "the whole head rotates in this architecture")
    return {"kv_channels": read.heads.size, "rotary_emb_base": read.real("rope.freq_base", 10000.0)}


QWEN = GgufArchitecture(
    model_type="qwen",
    integers={**SIZES, "context_length": "seq_length"},
    reals={RMS_NORM_EPS: "layer_norm_epsilon"},
    layer={
        "attn_norm": "ln_1",
        "attn_qkv": "attn.c_attn",
        "attn_output": "attn.c_proj",
        "ffn_norm": "ln_2",
        **gated("mlp", ("w2", "w1", "c_proj")),
    },
    top=_TOP,
    prefix="transformer.h.{i}.",
    rules=(_one_key_per_query, _qwen),
)


GPTNEOX = GgufArchitecture(
    model_type="gpt_neox",
    integers=SIZES,
    reals={LAYER_NORM_EPS: "layer_norm_eps"},
    layer={
        **_FALCON_LAYER,
        "attn_qkv": PerGroup("attention.query_key_value"),
        "attn_output": "attention.dense",
        "ffn_norm": "post_attention_layernorm",
    },
    top={"token_embd": "gpt_neox.embed_in", "output_norm": "gpt_neox.final_layer_norm", "output": "embed_out"},
    prefix="gpt_neox.layers.{i}.",
    rules=(
        _one_key_per_query,
        rule.partial_rotary("rotary_pct", theta="rotary_emb_base"),
        lambda read: {"use_parallel_residual": read.flag("use_parallel_residual", True)},
    ),
)

BY_NAME: Mapping[str, GgufArchitecture] = {
    "bloom": BLOOM,
    "falcon": FALCON,
    "gpt2": GPT2,
    "gptj": GPTJ,
    "gptneox": GPTNEOX,
    "mpt": MPT,
    "qwen": QWEN,
    "starcoder": STARCODER,
}
