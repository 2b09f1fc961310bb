"""Key rotation: queries and keys turned by one more angle, which changes no score and lowers the error of int8 keys.

Rotary embedding turns a pair of channels of key and query by an angle. One more angle, the same in both, leaves their
product as it is; it goes into the rows of the two matrices. Where a pair turns slowly its keys stay on one side for the
whole context, and some angles keep the coarse int8 steps of the larger channel away from what queries weigh most.
"""

import numpy as np
from numpy.typing import NDArray

from edgegen_export.architecture.rope import Rope
from edgegen_export.files.threads import in_threads
from edgegen_export.tensors.lazy import LazyTensor
from edgegen_export.tensors.sum import Sum

Array = NDArray[np.float32]
Angles = NDArray[np.float64]

_TRIED = np.arange(32) * (np.pi / 64)
"""After a quarter turn the two channels have changed places."""

_WORTH = 0.75
"""A pair is turned only if that leaves at most this share of its error."""


def best_angles(queries: Array, keys: Array, rope: Rope, positions: int) -> Angles:
    """The angle for each pair of each key head, [kv_heads, dim / 2], with the least error of scores with int8 keys.

    ``queries`` [n, heads, dim] and ``keys`` [n, kv_heads, dim]: rotated channels, as at position 0. A channel's error
    is that of its steps, its reach over all positions, times what queries have there.
    """
    kv_heads, first, second = keys.shape[1], *_pairs(rope)
    arc = (positions - 1) * rope.inverse_frequencies(positions).astype(np.float64)
    pairs = queries[..., first] + 1j * queries[..., second].astype(np.float64)
    pairs = pairs.reshape(len(pairs), kv_heads, -1, pairs.shape[-1])
    energy = (np.abs(pairs) ** 2).mean(axis=(0, 2))
    # Of how the energy lies between the two channels, the mean over all positions.
    turned_on = np.divide(np.expm1(2j * arc), 2j * arc, out=np.ones_like(arc, complex), where=arc > 0)
    lean = (pairs**2).mean(axis=(0, 2)) * turned_on

    def cost(angle: float) -> Angles:
        reach = rotated_reach(turned(keys, angle, rope)[:, :, None], rope, positions).astype(np.float64)
        more = (lean * np.exp(2j * angle)).real
        return (energy + more) * reach[:, first] ** 2 + (energy - more) * reach[:, second] ** 2

    costs = [*in_threads(cost, _TRIED)]
    best = np.argmin(costs, axis=0)
    worth = np.min(costs, axis=0) < _WORTH * costs[0]
    return np.where(worth, _TRIED[best], 0.0)


def turned(x: Array, angles: Angles | float, rope: Rope) -> Array:
    """The rotated channels x [n, heads, dim] turned by ``angles`` [heads, dim / 2]."""
    first, second = _pairs(rope)
    result, cosines, sines = np.empty_like(x), np.cos(angles), np.sin(angles)
    result[..., first] = x[..., first] * cosines - x[..., second] * sines
    result[..., second] = x[..., second] * cosines + x[..., first] * sines
    return result


def turned_rows(tensor: LazyTensor, angles: Angles, rope: Rope, head_dim: int) -> LazyTensor:
    """The tensor [heads · head_dim, …] that makes queries or keys, so that it makes them turned.

    ``angles`` [heads, dim / 2].
    """
    heads, (first, second) = len(angles), _pairs(rope)
    cosines, sines = np.ones((heads, head_dim), np.float32), np.zeros((heads, head_dim), np.float32)
    partners = np.tile(np.arange(head_dim), (heads, 1))
    for own, other, sign in ((first, second, -1), (second, first, 1)):
        cosines[:, : rope.dim][:, own], sines[:, : rope.dim][:, own] = np.cos(angles), sign * np.sin(angles)
        partners[:, : rope.dim][:, own] = np.arange(rope.dim)[other]
    partners += head_dim * np.arange(heads)[:, None]
    return Sum(tensor.scaled(cosines.ravel()), tensor.reordered(partners.ravel()).scaled(sines.ravel()))


def rotated_reach(keys: Array, rope: Rope, positions: int) -> Array:
    """The largest magnitude in each channel, [kv_heads, dim], that keys take at any of ``positions`` positions.

    ``keys`` [b, kv_heads, t, dim] are the rotated channels of keys at the positions 0 to t. A pair of channels moves on
    a circle; where it turns slowly, the text shows an arc of it only, in which one of the two may still be small.
    """
    first, second = _pairs(rope)
    x, y = keys[..., first], keys[..., second]
    turn: Angles = rope.inverse_frequencies(positions).astype(np.float64)
    moved: Angles = np.arange(keys.shape[2], dtype=np.float64)[:, None] * turn
    begin: Angles = np.arctan2(y, x) - moved
    arc, radius, quarter = (positions - 1) * turn, np.hypot(x, y), np.pi / 2
    reach = np.empty((keys.shape[1], rope.dim), np.float32)
    reach[:, first] = (radius * _largest_cosine(begin, arc)).max(axis=(0, 2))
    reach[:, second] = (radius * _largest_cosine(begin - quarter, arc)).max(axis=(0, 2))
    return reach


def rotated_mean(keys: Array, rope: Rope, positions: int) -> Array:
    """The mean of each channel, [kv_heads, dim], of keys that are at each of ``positions`` positions alike.

    ``keys`` [b, kv_heads, t, dim] are the rotated channels of keys at the positions 0 to t.
    """
    first, second = _pairs(rope)
    turn: Angles = rope.inverse_frequencies(positions).astype(np.float64)
    moved: Angles = np.arange(keys.shape[2], dtype=np.float64)[:, None] * turn
    begin = ((keys[..., first] + 1j * keys[..., second]) * np.exp(-1j * moved)).mean(axis=(0, 2))
    # The mean of a geometric series of turns.
    step, whole = np.expm1(1j * turn), np.expm1(1j * positions * turn)
    pairs = begin * np.divide(whole, positions * step, out=np.ones_like(step), where=step != 0)
    mean = np.empty((keys.shape[1], rope.dim), np.float32)
    mean[:, first], mean[:, second] = pairs.real, pairs.imag
    return mean


def _largest_cosine(begin: Angles, arc: Angles) -> Angles:
    """max |cos a| over the angles a from ``begin`` to ``begin + arc``."""
    end: Angles = begin + arc
    at_ends: Angles = np.maximum(np.abs(np.cos(begin)), np.abs(np.cos(end)))
    return np.where(np.floor(end / np.pi) >= np.ceil(begin / np.pi), 1.0, at_ends)


def _pairs(rope: Rope) -> tuple[slice, slice]:
    """Where the two channels of every pair are, among the rotated ones."""
    if rope.interleaved:
        return slice(0, None, 2), slice(1, None, 2)
    return slice(rope.dim // 2), slice(rope.dim // 2, None)
