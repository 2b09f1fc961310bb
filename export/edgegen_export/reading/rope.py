"""Rotary positions as configs have them: their settings, their scaling, and the contexts that it reaches."""

import math
from collections.abc import Mapping

from edgegen.errors import did_you_mean
from edgegen_export.architecture.config_reader import ConfigReader
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

YARN: Mapping[str, float] = {"yarn": 0.1}
"""Names of YaRN, and by how much of the factor's logarithm its cosines and sines grow."""


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
