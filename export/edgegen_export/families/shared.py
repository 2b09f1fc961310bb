"""What families have in common: activations by name, rotary settings, layer types, fragments of tensor maps."""

import math
from collections.abc import Sequence
from dataclasses import replace

import ml_dtypes
import numpy as np

from edgegen_export.config import Activation, DecoderConfig, Norm
from edgegen_export.config_reader import ConfigReader
from edgegen_export.rope import DynamicNtk, Linear, Llama3, LongRope, Rope, Scaling, Yarn

ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
}

LAYER_TYPES = {"full_attention": False, "sliding_attention": True}
"""Whether layers of a type see a window only."""

QK_NORM = {f"layers.{{i}}.attn.{x}_norm.weight": f"layers.{{i}}.self_attn.{x}_norm.weight" for x in "qk"}


def named(ours: str, theirs: str) -> dict[str | tuple[str, ...], str]:
    """Weight and bias of a module that is stored as it is."""
    return {f"{ours}.{x}": f"{theirs}.{x}" for x in ("weight", "bias")}


def layer_norm(eps: float) -> Norm:
    """LayerNorm with weight and bias."""
    return Norm("layer", eps, bias=True)


# Rotary positions.


def read_rope(
    read: ConfigReader,
    head_dim: int,
    positions: int,
    *,
    theta_key: str = "rope_theta",
    partial_key: str = "partial_rotary_factor",
    interleaved: bool = False,
) -> Rope:
    """The rotation that ``rope_theta`` and ``rope_scaling`` describe, or ``rope_parameters``, which newer writers put
    in the place of both."""
    theta, partial = read.optional(theta_key, float), read.optional(partial_key, float)
    key = "rope_parameters" if read.has("rope_parameters") else "rope_scaling"
    scaling: Scaling | None = None
    inner = read.inner(key)
    if inner is not None:
        theta = inner.optional("rope_theta", float) or theta
        partial = inner.optional("partial_rotary_factor", float) or partial
        read.ignore("rope_scaling")
    dim = int(head_dim * (1.0 if partial is None else partial))
    if inner is not None:
        scaling = _read_scaling(read, inner, dim, positions)
        read.close(key, inner)
    if theta is None:
        read.problem(f"{theta_key}: missing")
    if dim <= 0 or dim % 2 or dim > head_dim:
        read.problem(f"{partial_key} = {partial}: it rotates {dim} of {head_dim} values of a head")
        dim = head_dim
    return Rope(theta or 10000.0, dim, interleaved, scaling)


def _read_scaling(read: ConfigReader, inner: ConfigReader, dim: int, positions: int) -> Scaling | None:
    kind = inner.optional("rope_type", str) or inner.optional("type", str) or "default"
    inner.ignore("type", "rope_type")
    original = read.optional("original_max_position_embeddings", int)
    match kind:
        case "default":
            return None
        case "linear":
            return Linear(inner.number("factor"))
        case "dynamic":
            inner.ignore("original_max_position_embeddings")
            return DynamicNtk(inner.number("factor"), positions)
        case "yarn":
            factor = inner.number("factor")
            return Yarn(
                factor=factor,
                original=inner.optional("original_max_position_embeddings", int) or positions,
                fast=inner.optional("beta_fast", float) or 32.0,
                slow=inner.optional("beta_slow", float) or 1.0,
                truncate=inner.flag("truncate", True),
                attention_factor=_yarn_attention_factor(inner, factor),
            )
        case "llama3":
            return Llama3(
                factor=inner.number("factor"),
                original=inner.positive("original_max_position_embeddings"),
                low=inner.number("low_freq_factor"),
                high=inner.number("high_freq_factor"),
            )
        case "longrope" | "su":
            return _read_longrope(inner, original, dim, positions)
        case _:
            inner.problem(f"rope_type = {kind!r}: this scaling is not supported")
            return None


def _yarn_attention_factor(inner: ConfigReader, factor: float) -> float:
    given, mscale, all_dim = (inner.optional(k, float) for k in ("attention_factor", "mscale", "mscale_all_dim"))

    def log_scale(times: float = 1.0) -> float:
        return 1.0 if factor <= 1 else 0.1 * times * math.log(factor) + 1.0

    if given is not None:
        return given
    return log_scale(mscale) / log_scale(all_dim) if mscale and all_dim else log_scale()


def _read_longrope(inner: ConfigReader, original: int | None, dim: int, positions: int) -> LongRope:
    original = original or inner.optional("original_max_position_embeddings", int)
    inner.ignore("original_max_position_embeddings")
    given, factor = inner.optional("attention_factor", float), inner.optional("factor", float)
    factor = positions / original if original else factor or 1.0
    original = original or positions
    computed = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 else 1.0
    return LongRope(
        short=inner.numbers("short_factor", dim // 2),
        long=inner.numbers("long_factor", dim // 2),
        original=original,
        attention_factor=computed if given is None else given,
    )


def contexts(rope: Rope | None, positions: int) -> tuple[int, int]:
    """(default, longest) context of a model made for ``positions``: stretchings that depend on the length of the text
    are left out unless asked for."""
    match rope.scaling if rope else None:
        case LongRope(original=original):
            return min(original, positions), positions
        case DynamicNtk(factor):
            return positions, int(factor * positions)
        case _:
            return positions, positions


# Windows.


def sliding(config: DecoderConfig, window: int | None, which: Sequence[bool]) -> DecoderConfig:
    """``config`` with ``window`` on the layers that ``which`` says."""
    layers = tuple(
        replace(layer, window=window) if slides else layer for layer, slides in zip(config.layers, which, strict=True)
    )
    return replace(config, layers=layers)


def read_window(read: ConfigReader, key: str = "sliding_window") -> int | None:
    """A window of so many positions, or none."""
    window = read.optional(key, int)
    if window is not None and window <= 0:
        read.problem(f"{key}: must be positive, found {window}")
    return window


def read_layer_types(read: ConfigReader, layers: int, otherwise: Sequence[bool]) -> Sequence[bool]:
    """Which layers have a window: as ``layer_types`` says, or ``otherwise``."""
    return read.per_layer("layer_types", LAYER_TYPES, layers) or otherwise


# ALiBi.


def alibi_slopes(heads: int, *, bfloat16: bool = False) -> tuple[float, ...]:
    """One slope per head: powers of 2^(-8/n) for the n heads up to a power of two, and for the rest every other one of
    the finer sequence of 2n (Press et al. 2022)."""
    whole = 1 << (heads.bit_length() - 1)

    def powers(count: int) -> list[float]:
        return [2.0 ** (-8.0 * (k + 1) / count) for k in range(count)]

    slopes = powers(whole) + powers(2 * whole)[::2][: heads - whole]
    dtype = ml_dtypes.bfloat16 if bfloat16 else np.float32
    return tuple(float(x) for x in np.array(slopes, np.float32).astype(dtype).astype(np.float32))
