"""Parts that model families share: activations by name, RoPE settings, layer types, fragments of tensor maps."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

import ml_dtypes
import numpy as np

from edgegen.errors import did_you_mean
from edgegen_export.architecture.components.attention import QKNorm
from edgegen_export.architecture.components.mlp import Activation
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader, every
from edgegen_export.architecture.rope import (
    DynamicNtk,
    Linear,
    Llama3,
    LongRope,
    Proportional,
    Rope,
    Scaling,
    Yarn,
)
from edgegen_export.architecture.tensor_layouts import Interleaved

ACTIVATIONS: dict[str, Activation] = {
    "gelu": "gelu",
    "gelu_python": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
    "relu2": "relu2",
    "silu": "silu",
    "swish": "silu",
}

LAYER_TYPES = {"full_attention": False, "sliding_attention": True}
"""Whether layers of a type have sliding window attention."""

YARN: Mapping[str, float] = {"yarn": 0.1}
"""What YaRN is called, and by how much of the factor's logarithm its cosines and sines grow."""

QK_NORM = {f"layers.{{i}}.attn.{x}_norm.weight": f"layers.{{i}}.self_attn.{x}_norm.weight" for x in "qk"}

PER_LAYER_TENSORS = {
    "embed_per_layer.weight": "embed_tokens_per_layer.weight",
    "per_layer_in.weight": "per_layer_model_projection.weight",
    "per_layer_norm.weight": "per_layer_projection_norm.weight",
    "layers.{i}.per_layer.gate.weight": "layers.{i}.per_layer_input_gate.weight",
    "layers.{i}.per_layer.out.weight": "layers.{i}.per_layer_projection.weight",
    "layers.{i}.per_layer_norm.weight": "layers.{i}.post_per_layer_input_norm.weight",
}
"""Embeddings of each layer's own."""


def named(ours: str, theirs: str) -> dict[str | tuple[str, ...], str]:
    """The tensor map of a module's weight and bias."""
    return {f"{ours}.{x}": f"{theirs}.{x}" for x in ("weight", "bias")}


def fused_qkv(theirs: str, groups: int) -> dict[str | tuple[str, ...], Interleaved]:
    """The tensor map of a fused QKV module, weight and bias, one group per key head."""
    return {
        tuple(f"layers.{{i}}.attn.{x}.{kind}" for x in "qkv"): Interleaved(f"{theirs}.{kind}", groups)
        for kind in ("weight", "bias")
    }


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
    layer_type: str = "full_attention",
    partial: bool = False,
    share: float | None = None,
    proportional: bool = False,
    yarn: Mapping[str, float] = YARN,
) -> Rope:
    """RoPE as ``rope_theta`` and ``rope_scaling`` describe it, or as ``rope_parameters``, which replaces both in newer
    files, in some families per ``layer_type``. ``rope_scaling`` applies to full attention only.

    ``partial``: the family may rotate a part of each head; the others of transformers ignore that they should, or
    fail. ``share``: that part, where the file does not say it. ``proportional``: the family knows the scaling of that
    name. ``yarn``: what it calls YaRN, and by how much of the factor's logarithm cosines and sines grow.
    """
    theta, said = read.optional(theta_key, float), read.optional(partial_key, float)
    share = share if said is None else said
    inner = _rope_settings(read, layer_type)
    if inner is not None:
        within = rope_key(read)
        own_theta, own_partial = inner.optional("rope_theta", float), inner.optional("partial_rotary_factor", float)
        if own_theta is not None:
            read.agree(theta_key, theta := own_theta, f"{within}.rope_theta")
        if own_partial is not None:
            read.agree(partial_key, share := own_partial, f"{within}.{partial_key}")
    if theta is None and read.sound(theta_key):
        read.problem(f"{theta_key}: missing")
    elif theta is not None and theta <= 1:
        read.problem(f"{theta_key}: must be greater than 1, found {theta}")
    if not (partial or proportional) and share not in (None, 1.0):
        read.problem(f"{partial_key} = {share}: this family rotates whole heads")
        share = None
    dim = int(head_dim * (1.0 if share is None else share))
    if dim <= 0 or dim % 2 or dim > head_dim:
        if read.sound("head_dim"):
            read.problem(f"{partial_key} = {share}: it rotates {dim} of {head_dim} values of a head", "head_dim")
        dim = head_dim
    if inner and proportional and inner.optional("rope_type", str) == "proportional":
        scaling, dim = Proportional(dim // 2, inner.number("factor", 1.0, least=1)), head_dim
    else:
        scaling = _read_scaling(read, inner, dim, positions, yarn) if inner else None
    return Rope(theta if theta and theta > 1 else 10000.0, dim, interleaved, scaling)


def rope_key(read: ConfigReader) -> str:
    """The key of the object that describes RoPE; what the file says comes before a default."""
    if read.stated("rope_scaling") and not read.stated("rope_parameters"):
        return "rope_scaling"
    return "rope_parameters" if read.has("rope_parameters") else "rope_scaling"


def _rope_settings(read: ConfigReader, layer_type: str) -> ConfigReader | None:
    """The object that describes RoPE for layers of this type, if there is one."""
    read.ignore("rope_parameters", "rope_scaling")  # what the file says replaces a default of the other name
    if read.stated("rope_parameters") and read.stated("rope_scaling"):
        read.problem("rope_scaling: stands beside rope_parameters, which says the same in another way; keep one")
        return None
    inner = read.inner(rope_key(read))
    if inner and inner.has(layer_type):
        return inner.inner(layer_type)
    return inner if layer_type == "full_attention" else None


def _read_scaling(
    read: ConfigReader, inner: ConfigReader, dim: int, positions: int, yarn: Mapping[str, float]
) -> Scaling | None:
    kind = inner.optional("rope_type", str) or inner.optional("type", str) or "default"
    inner.ignore("type", "rope_type")
    inner.ignore("mrope_section", "mrope_interleaved")  # without pictures, positions in several dimensions are one
    match kind:
        case "default":
            return None
        case "mrope" if inner.has("mrope_section"):  # as the first Qwen2-VL calls it
            return None
        case "linear":
            return Linear(inner.number("factor", least=1))
        case "dynamic":
            inner.ignore("original_max_position_embeddings")
            if dim <= 2:
                read.problem(f"rope_type = 'dynamic': cannot stretch a rotation of {dim} values of a head")
            return DynamicNtk(inner.number("factor", least=1), positions)
        case _ if kind in yarn:
            return _read_yarn(inner, positions, yarn[kind])
        case "llama3":
            low, high = inner.limit("low_freq_factor"), inner.limit("high_freq_factor")
            if low is None or high is None or low >= high:
                inner.problem("low_freq_factor, high_freq_factor: two positive numbers expected, the second greater")
                low, high = 1.0, 4.0
            original = inner.positive("original_max_position_embeddings")
            return Llama3(inner.number("factor", least=1), original, low, high)
        case "longrope" | "su":
            return _read_longrope(read, inner, dim, positions)
        case _:
            scalings = ("default", "linear", "dynamic", *yarn, "llama3", "longrope")
            inner.problem(f"rope_type = {kind!r}: this scaling is not supported{did_you_mean(kind, scalings)}")
            inner.ignore_rest()
            return None


def _read_yarn(inner: ConfigReader, positions: int, growth: float) -> Yarn:
    factor = inner.number("factor", least=1)
    fast, slow = inner.limit("beta_fast") or 32.0, inner.limit("beta_slow") or 1.0
    if fast <= slow:
        inner.problem(f"beta_fast = {fast:g}: must be greater than beta_slow = {slow:g}")
    return Yarn(
        factor=factor,
        original=inner.positive("original_max_position_embeddings", positions),
        fast=fast,
        slow=slow,
        truncate=inner.flag("truncate", True),
        attention_factor=_yarn_attention_factor(inner, factor, growth),
    )


def _yarn_attention_factor(inner: ConfigReader, factor: float, growth: float) -> float:
    given = inner.limit("attention_factor")
    mscale, all_dim = (inner.number(k, 0.0, least=0) for k in ("mscale", "mscale_all_dim"))

    def log_scale(times: float = 1.0) -> float:
        return 1.0 if factor <= 1 else growth * times * math.log(factor) + 1.0

    if given is not None:
        return given
    return log_scale(mscale) / log_scale(all_dim) if mscale and all_dim else log_scale()


def _read_longrope(read: ConfigReader, inner: ConfigReader, dim: int, positions: int) -> LongRope:
    key = "original_max_position_embeddings"
    original = read.optional(key, int)
    own = inner.optional(key, int)
    if own is not None:
        read.agree(key, original := own, f"{rope_key(read)}.{key}")
    if original is not None and not 1 < original <= positions:
        read.problem(f"{key} = {original}: must be from 2 to max_position_embeddings = {positions}")
        original = None
    given, factor = inner.limit("attention_factor"), inner.limit("factor")
    factor = positions / original if original else factor or 1.0
    original = original or positions
    computed = math.sqrt(1 + math.log(factor) / math.log(original)) if factor > 1 and original > 1 else 1.0
    count = dim // 2
    return LongRope(
        short=inner.factors("short_factor", count),
        long=inner.factors("long_factor", count),
        original=original,
        attention_factor=computed if given is None else given,
    )


def contexts(rope: Rope | None, positions: int) -> tuple[int, int]:
    """(default, longest) context of a model trained for ``positions``. The longest uses the full reach of the
    RoPE scaling."""
    match rope.scaling if rope else None:
        case LongRope(original=original):
            return min(original, positions), positions
        case DynamicNtk(factor):
            return positions, int(factor * positions)
        case Yarn(factor, original):
            return positions, max(positions, int(factor * original))
        case _:
            return positions, positions


# Windows.


def sliding(config: DecoderConfig, window: int | None, which: Sequence[bool]) -> DecoderConfig:
    """``config`` with a sliding ``window`` on the layers selected by ``which``."""
    return config.each_attention(lambda own: replace(own, window=window), chosen(which))


def rotating(config: DecoderConfig, rope: Rope | None, which: Sequence[bool]) -> DecoderConfig:
    """``config`` with ``rope``, or without RoPE, on the layers selected by ``which``."""
    return config.each_attention(lambda own: replace(own, rope=rope), chosen(which))


def chosen(which: Sequence[bool]) -> set[int]:
    """The numbers of the layers for which ``which`` says so."""
    return {i for i, it in enumerate(which) if it}


def with_scale(config: DecoderConfig, scale: float) -> DecoderConfig:
    """``config`` with this factor of all scores."""
    return config.each_attention(lambda own: replace(own, scale=scale))


def with_qk_norm(config: DecoderConfig, norm: QKNorm | None) -> DecoderConfig:
    """``config`` with ``norm`` of queries and keys in all attention."""
    return config.each_attention(lambda own: replace(own, qk_norm=norm))


def without_gate(config: DecoderConfig) -> DecoderConfig:
    """``config`` with MLPs that have no gate."""
    return config.each_mlp(lambda own: replace(own, gated=False))


def read_window(read: ConfigReader, key: str = "sliding_window") -> int | None:
    """The size of the sliding window, or None."""
    return read.positive(key) if read.has(key) else read.optional(key, int)


def read_window_pattern(read: ConfigReader, layers: int, period: int) -> Sequence[bool]:
    """Which layers have a sliding window: by ``layer_types``, or all but every ``period``-th; the file may set it."""
    key = "sliding_window_pattern"
    given = read.positive(key if read.has(key) else f"_{key}", period)
    return read_layer_types(read, layers, every(given, False, True, layers))


def read_layer_types(read: ConfigReader, layers: int, otherwise: Sequence[bool]) -> Sequence[bool]:
    """Which layers have a sliding window: by ``layer_types``, or ``otherwise``."""
    return read.per_layer("layer_types", LAYER_TYPES, layers) or otherwise


# Shared KV caches.


def read_sources(read: ConfigReader, windowed: Sequence[bool], sizes: Sequence[tuple[int, int]]) -> list[int | None]:
    """The layer whose keys and values each of the last ``num_kv_shared_layers`` reads: of those before them, the last
    of its kind. ``sizes``: (head size, key heads) of each layer."""
    count = read.get("num_kv_shared_layers", int, 0)
    first, said = len(windowed) - count, f"num_kv_shared_layers = {count}"
    if not 0 <= count < len(windowed):
        read.problem(f"{said}: from 0 to {len(windowed) - 1} expected, for some layers must have keys and values")
        return [None] * len(windowed)
    sources: list[int | None] = [None] * first
    for i in range(first, len(windowed)):
        source = max((j for j in range(first) if windowed[j] == windowed[i]), default=None)
        if source is None:
            kind = "sliding" if windowed[i] else "full"
            read.problem(f"{said}: no layer of {kind} attention is left whose keys and values the others could read")
        elif sizes[source] != sizes[i]:
            read.problem(f"{said}: layer {i} cannot read the keys of layer {source}, which have another size")
        sources.append(source)
    return sources


# ALiBi.


def alibi_slopes(heads: int, *, bfloat16: bool = False) -> tuple[float, ...]:
    """The ALiBi slope of each head: powers of 2^(-8/n) for the n heads up to a power of two, and for the rest every
    other one of the finer sequence of 2n (Press et al. 2022)."""
    whole = 1 << (heads.bit_length() - 1)

    def powers(count: int) -> list[float]:
        return [2.0 ** (-8.0 * (k + 1) / count) for k in range(count)]

    slopes = powers(whole) + powers(2 * whole)[::2][: heads - whole]
    dtype = ml_dtypes.bfloat16 if bfloat16 else np.float32
    return tuple(float(x) for x in np.array(slopes, np.float32).astype(dtype).astype(np.float32))
