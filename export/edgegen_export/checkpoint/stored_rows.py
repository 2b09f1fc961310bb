"""StoredRows: rows of numbers as quantized checkpoints store them, unpacked to float32 when they are read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from edgegen_export.checkpoint.packing import WORD, Codes, unpacked
from edgegen_export.tensors.lazy import ArrayTensor

Floats = NDArray[np.float32]

_BYTES = np.arange(256, dtype=np.uint8)
_FLOAT8 = {
    name: _BYTES.view(dtype).astype(np.float32)
    for name, dtype in (("float8_e4m3fn", ml_dtypes.float8_e4m3fn), ("float8_e5m2", ml_dtypes.float8_e5m2))
}
"""The value of each byte."""

TWICE = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)
"""Twice the value of each code of a 4-bit float."""
_TWICE = TWICE.astype(np.float32)
_BIAS, _NOT_A_NUMBER = 127, 255


@dataclass(frozen=True, slots=True, eq=False)
class StoredRows:
    """A matrix of ``shape``, whose rows ``start:stop`` are ``read(stored, start, stop)``: a new float32 array.

    ``by_rows``: what a row is read of is a row of what is stored, and not a part of all.
    """

    stored: ArrayTensor
    shape: tuple[int, int]
    read: Callable[[NDArray[Any], int, int], Floats]
    by_rows: bool = True

    @classmethod
    def numbers(cls, stored: ArrayTensor) -> StoredRows:
        """Numbers, integers or floats."""
        return cls(stored, _shape(stored), lambda array, start, stop: array[start:stop].astype(np.float32))

    @classmethod
    def float8(cls, stored: ArrayTensor, name: str) -> StoredRows:
        """Bytes that are floats of 8 bits: ``name`` is their dtype."""
        values = _FLOAT8[name]
        return cls(stored, _shape(stored), lambda array, start, stop: np.take(values, array[start:stop]))

    @classmethod
    def exponents(cls, stored: ArrayTensor) -> StoredRows:
        """Bytes that are powers of two (E8M0): exponents plus 127, and 255 for NaN."""
        return cls(stored, _shape(stored), lambda array, start, stop: _powers(array[start:stop]))

    @classmethod
    def float4(cls, stored: ArrayTensor) -> StoredRows:
        """Twice the values of 4-bit floats (E2M1), two in a byte, the first in its low bits: whole numbers."""
        rows, width = _shape(stored)

        def read(array: NDArray[Any], start: int, stop: int) -> Floats:
            part: NDArray[np.uint8] = array[start:stop]
            return _TWICE[np.stack([part & np.uint8(15), part >> np.uint8(4)], axis=-1)].reshape(len(part), -1)

        return cls(stored, (rows, 2 * width), read)

    @classmethod
    def words(cls, stored: ArrayTensor, bits: int, columns: int) -> StoredRows:
        """Codes of ``bits`` one after the other in the 32-bit words of each row, low bits first."""

        def read(array: NDArray[Any], start: int, stop: int) -> Floats:
            codes: Codes = unpacked(array[start:stop].view(np.int32), bits)
            return codes[:, :columns].astype(np.float32)

        return cls(stored, (stored.shape[0], columns), read)

    @classmethod
    def words_of_columns(cls, stored: ArrayTensor, bits: int, rows: int) -> StoredRows:
        """As :meth:`words`, with the codes of consecutive rows in a word."""

        def read(array: NDArray[Any], start: int, stop: int) -> Floats:
            first, last = start // WORD, -(-stop // WORD)  # WORD codes fill whole words, whatever their bits
            codes = unpacked(np.ascontiguousarray(array[first * bits : last * bits].T), bits)
            return codes[:, start - first * WORD : stop - first * WORD].T.astype(np.float32)

        return cls(stored, (rows, stored.shape[1]), read, by_rows=False)

    def rows(self, start: int, stop: int) -> Floats:
        """Rows ``start:stop``: float32 [stop - start, columns], a new array."""
        return self.read(self.stored.stored, start, stop)

    def release(self, start: int, stop: int) -> None:
        """Give the mapped pages of rows ``start:stop`` back to the system."""
        (self.stored.take(start, stop) if self.by_rows else self.stored).release()


def _shape(stored: ArrayTensor) -> tuple[int, int]:
    rows, columns = stored.shape
    return rows, columns


def _powers(exponents: NDArray[np.uint8]) -> Floats:
    with np.errstate(over="ignore"):
        powers = np.ldexp(np.float32(1), exponents.astype(np.int32) - _BIAS)
    return np.where(exponents == _NOT_A_NUMBER, np.float32(np.nan), powers)
