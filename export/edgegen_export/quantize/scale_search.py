"""Scale search: block scales of least error, over clipping points that are each refined by least squares.

The NumPy code adds in the order of ``kernels/gptq/gptq.inc``, which does the same in C.
"""

import numpy as np

from edgegen_export.quantize.blockwise import Blocks, Floats, as_stored, in_blocks, middle
from edgegen_export.quantize.native import native_search

_SHRINKS = np.linspace(1.0, 0.7, 11, dtype=np.float32)
_FIRST = _SHRINKS[::4]
"""Tried with the largest weight on either end of the codes; the others on the end that suits the block better."""
_TINY = np.float32(np.finfo(np.float32).tiny) * np.float32(127)


def search_scales(groups: Floats, importance: Floats, bits: int, *, symmetric: bool) -> tuple[Floats, Floats]:
    """Scale and zero (a whole number in the range of the codes) of each column of ``groups`` [block, m].

    Of those tried they have the least ``Σ importance · (weight - rounded)²``, ``importance`` being [block]; then the
    scale is rounded as it is stored.
    """
    found = native_search(groups, importance, bits, symmetric=symmetric)
    return search_with_numpy(groups, importance, bits, symmetric=symmetric) if found is None else found


def search_with_numpy(groups: Floats, importance: Floats, bits: int, *, symmetric: bool) -> tuple[Floats, Floats]:
    """:func:`search_scales` where there is no library."""
    levels, half = np.float32(2**bits - 1), np.float32(middle(bits))
    high, low = np.maximum(groups.max(axis=0), 0), np.minimum(groups.min(axis=0), 0)
    best = _Best(groups, importance, levels)
    if symmetric:
        # Code 0 is one step farther away than the last code: a positive weight on it makes the scale negative.
        largest: Floats = np.maximum(high, -low) * np.where(high >= -low, np.float32(-1), np.float32(1))
        by_end = largest / half, -largest / (half - 1)
        first, last = (np.min([best.consider(end * by, half) for by in _FIRST], axis=0) for end in by_end)
        chosen = np.where(first <= last, *by_end)
        for by in _SHRINKS:
            if by not in _FIRST:
                best.consider(chosen * by, half)
    else:
        for by in _SHRINKS:
            scale = (high - low) * (by / levels)
            zero = np.rint(-low * by / np.where(scale < _TINY, 1, scale))  # both ends clipped alike
            best.consider(scale, np.clip(zero, 0, levels))
    return as_stored(best.scale), best.zero


def searched_rows(rows: Floats, bits: int, block_size: int) -> Blocks:
    """``rows`` [n, k] rounded to the nearest code, symmetric, with searched scales; every weight counts the same."""
    grouped = in_blocks(rows, block_size)
    columns = np.ascontiguousarray(grouped.reshape(-1, block_size).T)
    scales, zeros = search_scales(columns, np.ones(block_size, np.float32), bits, symmetric=True)
    scales = np.where(np.abs(scales) < _TINY, np.float32(1), scales)
    codes = np.clip(np.rint(columns / scales) + zeros, 0, 2**bits - 1).astype(np.uint8)
    return Blocks(
        np.ascontiguousarray(codes.T).reshape(grouped.shape),
        scales.reshape(grouped.shape[:2]),
        None,
        bits,
        rows.shape[1],
    )


class _Best:
    """The best scale and zero so far."""

    def __init__(self, groups: Floats, importance: Floats, levels: np.float32) -> None:
        self._groups, self._importance, self._levels = groups, importance, levels
        self._weighted = groups * importance[:, None]
        self._steps, self._products = np.empty_like(groups), np.empty_like(groups)
        self._cost = np.full(groups.shape[1], np.inf, np.float32)
        self.scale = np.ones(groups.shape[1], np.float32)
        self.zero = np.zeros(groups.shape[1], np.float32)

    def consider(self, scale: Floats, zero: Floats | np.float32) -> Floats:
        """Try a scale and a zero [m], or one zero for all; what they cost, less ``Σ importance · weight²``: [m]."""
        scale = np.where(np.abs(scale) < _TINY, np.float32(1), scale)
        steps = np.divide(self._groups, scale, out=self._steps)
        np.rint(steps, out=steps)
        np.maximum(steps, -zero, out=steps)
        np.minimum(steps, self._levels - zero, out=steps)
        squares = np.square(steps, out=self._products)
        below = _sum(squares, self._importance[:, None])
        above = _sum(steps, self._weighted)
        # The scale that suits these steps best, and what is then left of Σ importance · weight².
        refined = above / np.where(below > 0, below, 1)
        scale = np.where((below > 0) & (np.abs(refined) >= _TINY), refined, scale)
        cost = np.multiply(scale, scale * below - 2 * above, dtype=np.float32)
        better = cost < self._cost
        self._cost = np.where(better, cost, self._cost)
        self.scale, self.zero = np.where(better, scale, self.scale), np.where(better, zero, self.zero)
        return cost


def _sum(x: Floats, factors: Floats) -> Floats:
    """Σ x · factors over the first axis, one row after the other; x is written."""
    np.multiply(x, factors, out=x)
    total = np.zeros(x.shape[1], np.float32)
    for row in range(len(x)):
        total += x[row]
    return total
