"""Which layers have a sliding window, which positions, and whose keys and values they read."""

from collections.abc import Sequence
from dataclasses import replace

from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.config_reader import ConfigReader, every
from edgegen_export.architecture.rope import (
    Rope,
)

LAYER_TYPES = {"full_attention": False, "sliding_attention": True}
"""Whether layers of a type have sliding window attention."""


def sliding(config: DecoderConfig, window: int | None, which: Sequence[bool]) -> DecoderConfig:
    """``config`` with a sliding ``window`` on the layers selected by ``which``."""
    return config.each_attention(lambda own: replace(own, window=window), chosen(which))


def rotating(config: DecoderConfig, rope: Rope | None, which: Sequence[bool]) -> DecoderConfig:
    """``config`` with ``rope``, or without RoPE, on the layers selected by ``which``."""
    return config.each_attention(lambda own: replace(own, rope=rope), chosen(which))


def chosen(which: Sequence[bool]) -> set[int]:
    """The numbers of the layers for which ``which`` says so."""
    return {i for i, it in enumerate(which) if it}


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
