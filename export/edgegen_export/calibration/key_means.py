"""Means of keys, which an int4 KV cache subtracts: for which heads that is worth it.

The 16 codes of a key lie evenly between its least and its greatest channel, after a Hadamard matrix. What all keys of a
head have in common may take most of that range, and tells softmax nothing. But where positions are learned, those of
one window of the text may have little in common with the others'.
"""

from functools import reduce

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float32]

WORTH = 0.9
"""A head's mean is subtracted only if that leaves at most this share of its keys' range, in every window."""


def worth_subtracting(mean: Array, keys: Array) -> Array:
    """``mean`` [kv_heads, head_dim], and 0 for heads where it is not worth it, or not finite.

    ``keys`` [windows, kv_heads, t, head_dim], of windows all over the context.
    """
    before, after = _range(keys), _range(keys - mean[:, None])
    shares: Array = np.exp(np.log(after / before).mean(axis=2)).max(axis=0)
    return np.where((shares <= WORTH)[:, None], mean, np.float32(0))


def _range(keys: Array) -> Array:
    """Return the range that the codes have to cover of each key; 0 is always between."""
    size = keys.shape[-1]
    block = size & -size
    mixed = keys.reshape(*keys.shape[:-1], -1, block) @ _hadamard(block)
    return mixed.max(axis=(-1, -2), initial=0) - mixed.min(axis=(-1, -2), initial=0)


def _hadamard(size: int) -> Array:
    """A Hadamard matrix of 1 and -1; its size is a power of two."""
    one, two = np.ones((1, 1), np.float32), np.array([[1, 1], [1, -1]], np.float32)
    return reduce(np.kron, [two] * (size.bit_length() - 1), one)
