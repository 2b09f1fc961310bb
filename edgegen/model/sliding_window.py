"""SlidingWindow: how many positions the KV cache of a layer with sliding-window attention keeps, and from where.

The cache of such a layer starts at its *base*. Now and then the base moves up, and what is kept moves to the front.
Bases are multiples of ``step``, or bits would change: GroupQueryAttention takes keys block by block and adds up what
each block yields, so a base must not fall within a block.
"""

import math
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from edgegen.bundle.kv_format import KVFormat
from edgegen.bundle.manifest import KVSpec

BEHIND = 32
"""Positions kept beyond the window: as many can always be truncated and computed again."""

CHUNK = 128
"""Tokens of one run that there is room for; a cache makes room for more when a run has more."""

_QUARTER = 4


class SlidingWindow(NamedTuple):
    """The last ``size`` positions, the query's own included; bases are multiples of ``step``."""

    size: int
    step: int

    def base(self, length: int) -> int:
        """The latest position at which the cache of a sequence of ``length`` positions may start."""
        return max(0, length - BEHIND - self.size + 1) // self.step * self.step

    def room(self, tokens: int) -> int:
        """Positions there must be room for, if a run has ``tokens`` at most.

        A slide moves what is kept, at most ``size + BEHIND + step`` positions, and makes room for ``tokens`` tokens, or
        for a quarter of the window: each token pays for a few positions, and reads as many as the window has.
        """
        return self.size + BEHIND + self.step + max(tokens, self.size // _QUARTER)

    def tokens_beside(self, held: int) -> int:
        """The tokens of a run for which there is room for ``held`` positions."""
        return max(0, held - self.size - BEHIND - self.step)


def window_step(form: KVFormat, head_dims: Iterable[int], l2_cache: int | None, *, kernels: bool) -> int:
    """Return what bases are multiples of, for layers with heads of these sizes; ``l2_cache``: the machine's, in bytes.

    Keys are summed block by block: a base that is no multiple of a block would give other bits than one that is.
    ``kernels``: ours, which join parts of 256 keys, compute all attention. The blocks of ONNX Runtime's operator (1.31,
    ``gqa_attention_base.h``) are a quarter of the second-level cache, for a float32 KV cache. In float32, single tokens
    and capped scores are not taken in blocks; their matrix products are, of 128 positions or more for narrow heads
    (``MlasSgemm``).
    """
    if kernels:
        return _PART
    return math.lcm(*(_blocks(form, head_dim, l2_cache or _UNKNOWN_L2) for head_dim in head_dims))


_PART = 256

_UNKNOWN_L2 = 1 << 18
"""Bytes. 1.31 has blocks of one position then, of which anything is a multiple; later versions assume this much."""


def _blocks(form: KVFormat, head_dim: int, l2_cache: int) -> int:
    attention = max(1, l2_cache // (4 * 4 * 2 * head_dim))
    product = form.stock_block or max(128, min(1024, 16384 // (1 << (head_dim - 1).bit_length())))
    return math.lcm(attention, product)


def windows_of(kv: KVSpec, l2_cache: int | None, *, kernels: bool) -> dict[str, SlidingWindow]:
    """The window of each cache class that has one, by its name; arguments as for :func:`window_step`."""
    dims = {name: {layer.head_dim for layer in kv.layers if layer.cache_class == name} for name in kv.classes}
    return {
        name: SlidingWindow(kv_class.window, window_step(kv.format, dims[name], l2_cache, kernels=kernels))
        for name, kv_class in kv.classes.items()
        if kv_class.window is not None
    }


def bytes_needed(kv: KVSpec, windows: Mapping[str, SlidingWindow], tokens: int) -> int:
    """Bytes of KV cache of one sequence of ``tokens``, run in chunks of ``CHUNK`` at most, and of its fixed states."""

    def positions(name: str) -> int:
        return min(tokens, windows[name].room(CHUNK)) if name in windows else tokens

    return kv.bytes_per_row + sum(kv.layer_bytes(layer) * positions(layer.cache_class) for layer in kv.layers)
