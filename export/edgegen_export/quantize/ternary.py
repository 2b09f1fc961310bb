"""Ternary matrices: rows of -1, 0 and 1 times a scale, in 2 bits each (BitNet b1.58, arXiv:2402.17764)."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

IN_A_BYTE = 4
_ZERO = 2
"""The code that stands for zero, as in all symmetric matrices."""


def ternary_rows(rows: Floats) -> tuple[NDArray[np.uint8], Floats] | None:
    """``rows`` [n, k] as codes uint8 [n, k / 4], four in a byte, the first in its low bits, and the scale of each row
    [n]; None where a row has values of several sizes."""
    sizes = np.abs(rows)
    scales: Floats = sizes.max(axis=1, initial=0)
    if ((sizes != scales[:, None]) & (rows != 0)).any():
        return None
    codes = (np.sign(rows) + np.float32(_ZERO)).astype(np.uint8)
    packed = codes[:, 0::IN_A_BYTE].copy()
    for i in range(1, IN_A_BYTE):
        packed |= codes[:, i::IN_A_BYTE] << np.uint8(2 * i)
    return packed, scales


def values_of_bytes() -> NDArray[np.int8]:
    """Values that each byte of codes stands for: int8 [256, 4]."""
    codes = np.arange(256)[:, None] >> 2 * np.arange(IN_A_BYTE) & 3
    return (codes - _ZERO).astype(np.int8)
