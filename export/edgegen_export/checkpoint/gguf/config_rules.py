"""Rules: the entries of ``config.json`` that GGUF metadata says in other words, or that its tensors say."""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from edgegen_export.checkpoint.gguf.metadata_reader import MetadataReader

Entries = dict[str, Any]
Rule = Callable[[MetadataReader], Entries]

ROPE_FACTORS = ("rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight")
"""Tensors that belong to the configuration."""
_LLAMA3 = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def refused(key: str, harmless: Sequence[object], reason: str) -> Rule:
    """Anything but ``harmless`` (or nothing) under ``key`` cannot be exported, for ``reason``."""

    def rule(read: MetadataReader) -> Entries:
        read.refuse(key, harmless, reason)
        return {}

    return rule


def ignored(*keys: str) -> Rule:
    """Mark ``keys``, which change nothing, as read."""

    def rule(read: MetadataReader) -> Entries:
        read.ignore(*keys)
        return {}

    return rule


def integer(key: str, said: str) -> Rule:
    """``key``: the whole number under ``said``."""
    return lambda read: {key: read.integer(said)}


def has(key: str, *names: str) -> Rule:
    """``key``: whether the first layer has any tensor of these names."""
    return lambda read: {key: any(read.has(f"blk.{{i}}.{name}") for name in names)}


def grouped_heads(read: MetadataReader) -> Entries:
    return {"num_key_value_heads": read.heads.keys}


def head_dim(read: MetadataReader) -> Entries:
    """The width of a head, for classes whose default is not the quotient of width and heads."""
    return {"head_dim": read.heads.size}


def head_dim_if_own(read: MetadataReader) -> Entries:
    """The width of a head where it is not the quotient of width and heads."""
    size = read.heads.size
    return {} if size * read.heads.queries == read.hidden_size else {"head_dim": size}


def full_rotary(read: MetadataReader) -> Entries:
    """Rotary positions over the whole head, and their scaling."""
    read.refuse("rope.dimension_count", (read.heads.size,), "only whole heads can be rotated in this architecture")
    return {"rope_theta": _rope_theta(read)} | rope_scaling(read)


def partial_rotary(key: str, *, theta: str = "rope_theta") -> Rule:
    """Rotary positions over a part of the head, which is said as a fraction under ``key``."""

    def rule(read: MetadataReader) -> Entries:
        size = read.heads.size
        rotated = read.integer("rope.dimension_count", size)
        return {theta: _rope_theta(read), key: _fraction(rotated, size)} | rope_scaling(read)

    return rule


WHOLE_HEADS: tuple[Rule, ...] = (grouped_heads, head_dim, full_rotary)
PARTS_OF_HEADS: tuple[Rule, ...] = (grouped_heads, head_dim, partial_rotary("partial_rotary_factor"))
"""Sizes of heads, which rotate whole or in part."""


def rope_scaling(read: MetadataReader) -> Entries:
    """``rope_scaling`` as transformers has it: linear, yarn, longrope, llama3 or none."""
    kind = read.text("rope.scaling.type", "linear")
    factor = read.real("rope.scaling.factor", 0.0) or read.real("rope.scale_linear", 0.0)
    original = read.integer("rope.scaling.original_context_length", 0, least=0)
    attention = read.real("rope.scaling.attn_factor", 0.0)
    long, short = read.factors("rope_factors_long.weight"), read.factors("rope_factors_short.weight")
    freqs = read.factors("rope_freqs.weight")
    if kind == "yarn":
        return {"rope_scaling": _yarn(read, factor, original)}
    if long and short:
        scaling: Entries = {"type": "longrope", "short_factor": short, "long_factor": long}
        context = read.integer("context_length")
        if attention and not _is_usual_longrope(attention, context, original or context):
            scaling["attention_factor"] = attention
        given = {"original_max_position_embeddings": original} if original else {}
        return {"rope_scaling": scaling, **given}
    read.refuse("rope.scaling.attn_factor", (0.0, 1.0), "attention is scaled so with long rotary factors only")
    read.refuse("rope.scaling.type", ("none", "linear"), "this scaling is not known, or its factors are missing")
    if freqs and any(value != 1.0 for value in freqs):
        return {"rope_scaling": _llama3(read, freqs)}
    if kind == "linear" and factor not in (0.0, 1.0):
        return {"rope_scaling": {"rope_type": "linear", "factor": factor}}
    return {}


def _yarn(read: MetadataReader, factor: float, original: int) -> Entries:
    read.refuse("rope.scaling.yarn_ext_factor", (1.0,), "only the usual extrapolation is supported")
    scaling: Entries = {"rope_type": "yarn", "factor": factor or 1.0}
    if original:
        scaling["original_max_position_embeddings"] = original
    names = {"yarn_attn_factor": "attention_factor", "yarn_beta_fast": "beta_fast", "yarn_beta_slow": "beta_slow"}
    values = {theirs: read.real(f"rope.scaling.{ours}", 0.0) for ours, theirs in names.items()}
    return scaling | {name: value for name, value in values.items() if value}


def _is_usual_longrope(attention: float, context: int, original: int) -> bool:
    scale = context / original
    usual = math.sqrt(1 + math.log(scale) / math.log(original)) if scale > 1 else 1.0
    return math.isclose(attention, usual, rel_tol=1e-5)


def _llama3(read: MetadataReader, freqs: list[float]) -> Entries:
    """Return the RoPE scaling of which the factors that divide every frequency were made.

    The converter writes the factors alone. Where Llama 3's usual settings give them, those are said; any others are
    said as the factors themselves, in the one scheme that has them.
    """
    width, base = 2 * len(freqs), _rope_theta(read)
    wavelengths = 2 * math.pi * base ** (np.arange(0, width, 2) / width)
    low, high, original = _LLAMA3.values()
    factor = float(np.float32(max(freqs)))
    smooth = np.clip((original / wavelengths - low) / (high - low), 0.0, 1.0)
    if np.allclose(1 / ((1 - smooth) / factor + smooth), freqs, rtol=1e-4):
        return {"rope_type": "llama3", "factor": factor, **_LLAMA3}
    same = {"short_factor": freqs, "long_factor": freqs, "attention_factor": 1.0}
    return {"rope_type": "longrope", **same, "original_max_position_embeddings": read.integer("context_length")}


def bias(key: str, stem: str) -> Rule:
    """``key`` where the first layer has that bias."""
    return lambda read: {key: True} if read.has(f"blk.{{i}}.{stem}.bias") else {}


def without_drafts(read: MetadataReader) -> Entries:
    """The layers that count: the file's last ones may propose further tokens."""
    return {"num_hidden_layers": max(1, read.layers - read.integer("nextn_predict_layers", 0, least=0))}


def sliding_layers(period: int, window: int | None = None, *, before_drafts: bool = False) -> Rule:
    """Every ``period``-th layer attends to everything, the others to the last ``window`` tokens; ``before_drafts``: of
    the layers that count."""

    def rule(read: MetadataReader) -> Entries:
        layers = without_drafts(read)["num_hidden_layers"] if before_drafts else read.layers
        slides = read.flags("attention.sliding_window_pattern", [i % period < period - 1 for i in range(layers)])
        kinds = ["sliding_attention" if layer_slides else "full_attention" for layer_slides in slides]
        return {"sliding_window": read.integer("attention.sliding_window", window), "layer_types": kinds}

    return rule


def weighed_by_sigmoids(*said: int) -> Rule:
    """Experts are weighed by sigmoids, which files say by one of these numbers."""
    return refused("expert_gating_func", said, "experts are weighed by sigmoids only in this architecture")


text_only = ignored("rope.dimension_sections", "n_deepstack_layers")
"""Positions of pictures in shares of a head, and layers that see more of them, which change nothing in texts."""


def no_default_scaling(read: MetadataReader) -> Entries:
    """RoPE scaling said either way, for classes that have one by default."""
    return {"rope_scaling": None} | rope_scaling(read)


def gemma_attention_scale(largest: int) -> Rule:
    """Gemma's largest model, known by its layers alone, scales by width over heads, the others by the head's width."""

    def rule(read: MetadataReader) -> Entries:
        is_largest = read.layers == largest
        return {"query_pre_attn_scalar": read.hidden_size // read.heads.queries if is_largest else read.heads.size}

    return rule


def _rope_theta(read: MetadataReader) -> float:
    return read.real("rope.freq_base", 10000.0)


def _fraction(part: int, whole: int) -> float:
    """``part / whole`` such that ``int(whole * fraction)`` is ``part`` again."""
    fraction = part / whole
    return fraction if int(whole * fraction) == part else math.nextafter(fraction, 2.0)
