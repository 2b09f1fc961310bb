"""Gemma, 1 to 4: norms that store 1 + w, a head of their own width, then norms on both sides and sliding windows.

Gemma 3n's and Gemma 4's norms store w. Gemma 4's layers of full attention have heads of another width.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isclose, isnan
from statistics import NormalDist
from typing import cast

from edgegen_export.checkpoint.gguf import config_rules as rule
from edgegen_export.checkpoint.gguf.architecture import SIZES, TOP, GgufArchitecture, Modules
from edgegen_export.checkpoint.gguf.architectures.llama_like import ATTENTION, GATED_MLP, LATE_NORMS, LLAMA, QK_NORMS
from edgegen_export.checkpoint.gguf.config_rules import Entries
from edgegen_export.checkpoint.gguf.layouts import Each, Heads, OnePlus, Parameter
from edgegen_export.checkpoint.gguf.metadata_reader import MetadataReader

_TOP: Modules = {**TOP, "output_norm": OnePlus("model.norm")}
_LAYER: Modules = {
    "attn_norm": OnePlus("input_layernorm"),
    **ATTENTION,
    "ffn_norm": OnePlus("post_attention_layernorm"),
    **GATED_MLP,
}
_SANDWICH: Modules = {
    **_LAYER,
    "post_attention_norm": OnePlus("post_attention_layernorm"),
    "ffn_norm": OnePlus("pre_feedforward_layernorm"),
    "post_ffw_norm": OnePlus("post_feedforward_layernorm"),
}
_QK_NORMS: Modules = {"attn_q_norm": OnePlus("self_attn.q_norm"), "attn_k_norm": OnePlus("self_attn.k_norm")}

GEMMA = replace(
    LLAMA,
    model_type="gemma",
    layer=_LAYER,
    top=_TOP,
    rules=rule.WHOLE_HEADS,
    constants={"hidden_activation": "gelu_pytorch_tanh"},
)


def _softcaps(read: MetadataReader) -> Entries:
    keys = ("attn_logit_softcapping", "final_logit_softcapping")
    return {key: read.real(key, 0.0) or None for key in keys}


GEMMA2 = replace(
    GEMMA,
    model_type="gemma2",
    layer=_SANDWICH,
    rules=(*rule.WHOLE_HEADS, rule.sliding_layers(2, 4096), rule.gemma_attention_scale(46), _softcaps),
)


def _local_rope_theta(read: MetadataReader) -> Entries:
    return {"rope_local_base_freq": read.real("rope.freq_base_swa", 10000.0)}


GEMMA3 = replace(
    GEMMA2,
    model_type="gemma3_text",
    layer={**_SANDWICH, **_QK_NORMS},
    rules=(*rule.WHOLE_HEADS, rule.sliding_layers(6), rule.gemma_attention_scale(62), _softcaps, _local_rope_theta),
)


def _gemma4_layers(read: MetadataReader) -> Entries:
    """Heads of both kinds of layers, and how many layers read the keys and values of others."""
    windows = read.flags("attention.sliding_window_pattern", [i % 6 < 5 for i in range(read.layers)])
    kinds = ["sliding_attention" if has_window else "full_attention" for has_window in windows]
    queries, counts = read.integer("attention.head_count"), read.by_layer("attention.head_count_kv")
    global_size = read.integer("attention.key_length")
    size = read.integer("attention.key_length_swa", global_size)
    read.refuse("attention.value_length", (global_size,), "values as wide as keys are supported only")
    read.refuse("attention.value_length_swa", (size,), "values as wide as keys are supported only")
    read.heads = Heads(queries, 1, size)
    of_kinds = {kind: {count for count, other in zip(counts, kinds, strict=True) if other == kind} for kind in kinds}
    mixed = [kind for kind, found in of_kinds.items() if len(found) > 1 or not all(type(it) is int for it in found)]
    if mixed:
        read.wrong("attention.head_count_kv", f"one number for all layers of {mixed[0]} expected")
        return {"num_hidden_layers": read.layers}
    keys = {kind: cast(int, found.pop()) for kind, found in of_kinds.items()}
    local, whole = keys.get("sliding_attention", 1), keys.get("full_attention", 1)
    read.heads = Heads(queries, local, size)
    shared = read.integer("attention.shared_kv_layers", 0, least=0)
    full = [i for i in range(max(0, read.layers - shared)) if not windows[i]]
    with_values = [i for i in full if read.has("blk.{i}.attn_v.weight", i)]
    return {
        "num_hidden_layers": read.layers,
        "layer_types": kinds,
        "sliding_window": read.integer("attention.sliding_window"),
        "head_dim": size,
        "global_head_dim": global_size,
        "num_key_value_heads": local,
        "num_global_key_value_heads": whole,
        "attention_k_eq_v": bool(full) and not with_values,
        "num_kv_shared_layers": shared,
        **_double_width(read, shared),
    }


def _double_width(read: MetadataReader, shared: int) -> Entries:
    """The width of the MLPs, which may be double in layers that read the keys and values of others."""
    widths = read.by_layer("feed_forward_length")
    own, reading = set(widths[: read.layers - shared]), set(widths[read.layers - shared :])
    width = next(iter(own), None)
    if type(width) is not int or width < 1 or len(own) > 1 or reading - {width, 2 * width} or len(reading) > 1:
        read.wrong("feed_forward_length", "one number expected, or twice as much where keys and values are shared")
        return {"intermediate_size": 1}
    return {"intermediate_size": width, "use_double_wide_mlp": reading == {2 * width}}


def _gemma4_rope(read: MetadataReader) -> Entries:
    """Both kinds of layers have their own; of a full layer's head, a part rotates: the rest is divided by much."""
    size, global_size = read.heads.size, read.integer("attention.key_length")
    read.refuse("rope.dimension_count", (global_size,), "only whole heads can be rotated in this architecture")
    read.refuse("rope.dimension_count_swa", (size,), "only whole heads can be rotated in this architecture")
    factors = read.factors("rope_freqs.weight") or [1.0] * (global_size // 2)
    rotated = sum(factor == 1.0 for factor in factors)
    if len(factors) != global_size // 2 or any(factor < 1e20 for factor in factors[rotated:]):
        read.wrong("rope_freqs.weight", f"{global_size // 2} numbers expected, 1 for what rotates and 1e30 after it")
    local, whole = read.real("rope.freq_base_swa", 10000.0), read.real("rope.freq_base", 1000000.0)
    proportional = {"rope_type": "proportional", "partial_rotary_factor": rotated / max(1, global_size // 2)}
    return {
        "rope_parameters": {
            "sliding_attention": {"rope_type": "default", "rope_theta": local},
            "full_attention": {**proportional, "rope_theta": whole},
        }
    }


def _shares(scales: Sequence[object]) -> list[float]:
    """The shares of an MLP's gate that are cut off, of as many deviations above the mean as the file says. Where the
    original's number has six digits or fewer, it is that one."""
    shares = [NormalDist().cdf(scale) if isinstance(scale, float) and scale > 0 else 0.0 for scale in scales]
    short = [round(share, 6) for share in shares]
    return [
        near if 0 < near < 1 and isclose(NormalDist().inv_cdf(near), cast(float, scale), rel_tol=1e-6) else share
        for near, share, scale in zip(short, shares, scales, strict=True)
    ]


def _gemma3n(read: MetadataReader) -> Entries:
    """The residual streams, the low rank of learned residuals, sparse MLPs, and the keys and values that are shared."""
    scales = read.by_layer("activation_sparsity_scale")
    if not all(isinstance(scale, float) and not isnan(scale) for scale in scales):
        read.wrong("activation_sparsity_scale", f"{read.layers} numbers expected")
        scales = [0.0] * read.layers
    return {
        "num_hidden_layers": read.layers,
        "intermediate_size": read.by_layer("feed_forward_length"),
        "activation_sparsity_pattern": _shares(scales),
        "altup_num_inputs": read.integer("altup.num_inputs"),
        "altup_active_idx": read.integer("altup.active_idx", 0, least=0),
        "laurel_rank": read.rows("blk.0.laurel_l.weight"),
        "num_kv_shared_layers": read.integer("attention.shared_kv_layers", 0, least=0),
        "hidden_size_per_layer_input": read.integer("embedding_length_per_layer_input"),
        "vocab_size_per_layer_input": read.rows("per_layer_token_embd.weight"),
        "final_logit_softcapping": read.real("final_logit_softcapping", 30.0) or None,
    }


def _gemma4_others(read: MetadataReader) -> Entries:
    """The embeddings of each layer, and the limit of the logits."""
    width = read.integer("embedding_length_per_layer_input", 0, least=0)
    return {
        "hidden_size_per_layer_input": width,
        "vocab_size_per_layer_input": read.rows("per_layer_token_embd.weight") if width else read.vocab_size,
        "final_logit_softcapping": read.real("final_logit_softcapping", 0.0) or None,
    }


_SAME: Modules = {
    **LATE_NORMS,
    **QK_NORMS,
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_PER_LAYER_TOP: Modules = {
    **TOP,
    "per_layer_token_embd": "model.embed_tokens_per_layer",
    "per_layer_model_proj": "model.per_layer_model_projection",
    "per_layer_proj_norm": "model.per_layer_projection_norm",
}
_PER_LAYER: Modules = {
    "inp_gate": "per_layer_input_gate",
    "proj": "per_layer_projection",
    "post_norm": "post_per_layer_input_norm",
}
_OF_MODEL = {ours: SIZES[ours] for ours in ("context_length", "embedding_length", "attention.head_count")}

GEMMA3N = replace(
    GEMMA,
    model_type="gemma3n_text",
    integers=_OF_MODEL,
    layer={
        **_SAME,
        **ATTENTION,
        **GATED_MLP,
        **_PER_LAYER,
        "altup_router": "altup.modality_router",
        "altup_router_norm": "altup.router_norm",
        "altup_predict_coef": "altup.prediction_coefs",
        "altup_correct_coef": "altup.correction_coefs",
        "altup_correct_scale": Parameter("altup.correct_output_scale"),
        "laurel_l": "laurel.linear_left",
        "laurel_r": "laurel.linear_right",
        "laurel_post_norm": "laurel.post_laurel_norm",
    },
    top={
        **_PER_LAYER_TOP,
        "altup_proj": Each("model.altup_projections.{n}"),
        "altup_unembd_proj": Each("model.altup_unembed_projections.{n}"),
    },
    rules=(*rule.WHOLE_HEADS, rule.sliding_layers(5), _local_rope_theta, _gemma3n),
)

GEMMA4 = replace(
    GEMMA,
    model_type="gemma4_text",
    integers=_OF_MODEL,
    layer={**_SAME, **ATTENTION, **GATED_MLP, **_PER_LAYER, "layer_output_scale": Parameter("layer_scalar")},
    top=_PER_LAYER_TOP,
    rules=(_gemma4_layers, _gemma4_rope, _gemma4_others),
)

BY_NAME: Mapping[str, GgufArchitecture] = {
    "gemma": GEMMA,
    "gemma2": GEMMA2,
    "gemma3": GEMMA3,
    "gemma3n": GEMMA3N,
    "gemma4": GEMMA4,
}
