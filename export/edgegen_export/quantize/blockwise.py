"""Matrices in blocks: consecutive columns of a row share a scale, in the layout of ONNX Runtime's ``MatMulNBits``.

A weight is ``(code - zero) * scale``. A symmetric matrix has the zero in the middle of its codes; else each block has
its own.
"""

from dataclasses import dataclass, replace
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.manifest import MatrixFormat
from edgegen_export.files.threads import in_threads
from edgegen_export.quantize.native import native_nearest
from edgegen_export.tensors.lazy import LazyTensor

Floats = NDArray[np.float32]
Bytes = NDArray[np.uint8]

SCALE = np.dtype(ml_dtypes.bfloat16)
"""How scales are stored, unless they are another's: with the range of float32, and as exact as scales need to be, for
codes are made to fit."""

_TOGETHER = 4
"""Blocks of 3 or 2 bits whose words are stored together."""

_SLAB = 1 << 20
"""Bytes of a matrix that are rounded at a time."""

_TINY = np.finfo(np.float32).tiny


@dataclass(frozen=True, slots=True, eq=False)
class Blocks:
    """A matrix [n, k]: ``codes`` uint8 [n, blocks, block_size], one per weight, padded beyond k with the zero;
    ``scales`` float32 [n, blocks]; ``zeros`` uint8 [n, blocks], or None where all are ``2 ** (bits - 1)``.

    ``scale_dtype``: one that holds these scales, and in which they are stored; ``lost``: where it is known, the square
    of what rounding changed of the products with some inputs.
    """

    codes: Bytes
    scales: Floats
    zeros: Bytes | None
    bits: int
    columns: int
    scale_dtype: np.dtype[Any] = SCALE
    lost: float = 0.0

    def rows(self, which: slice | NDArray[np.int64]) -> "Blocks":
        """These rows of the matrix."""
        zeros = None if self.zeros is None else self.zeros[which]
        return replace(self, codes=self.codes[which], scales=self.scales[which], zeros=zeros)

    def values(self) -> Floats:
        """Return the values that the codes stand for: float32 [n, k]."""
        zeros = np.float32(middle(self.bits)) if self.zeros is None else self.zeros[:, :, None].astype(np.float32)
        values: Floats = (self.codes.astype(np.float32) - zeros) * self.scales[:, :, None]
        return values.reshape(len(values), -1)[:, : self.columns]


def as_stored(scales: Floats) -> Floats:
    """``scales`` rounded to what is stored."""
    return scales.astype(SCALE).astype(np.float32)


def middle(bits: int) -> int:
    """The code that stands for zero in a symmetric matrix."""
    return 1 << (bits - 1)


def block_size_for(columns: int, wanted: int) -> int:
    """The largest block ≤ ``wanted`` that divides ``columns``; 16, the operator's smallest, where none does."""
    for block in (wanted, 32, 16):
        if block <= wanted and columns % block == 0:
            return block
    return 16


def in_blocks(rows: Floats, block_size: int) -> Floats:
    """``rows`` [n, k] as [n, blocks, block_size], zeros behind the last column."""
    n, k = rows.shape
    blocks = -(-k // block_size)
    if blocks * block_size != k:
        rows = np.pad(rows, ((0, 0), (0, blocks * block_size - k)))
    return rows.reshape(n, blocks, block_size)


def round_rows(rows: Floats, bits: int, block_size: int) -> Blocks:
    """``rows`` [n, k] rounded to the nearest code, symmetric, the largest weight of a block on the last code.

    With 4 bits that is code 0, eight steps from the zero, whatever the weight's sign: scales may be negative.
    """
    grouped = in_blocks(rows, block_size)
    return Blocks(*(native_nearest(grouped, bits) or nearest_with_numpy(grouped, bits)), None, bits, rows.shape[1])


def nearest_with_numpy(grouped: Floats, bits: int) -> tuple[Bytes, Floats]:
    """:func:`native_nearest` with NumPy."""
    half = middle(bits)
    largest: Floats = np.maximum(grouped.max(axis=2), -grouped.min(axis=2))
    if bits == 8:
        scales = largest / np.float32(127)
    else:
        scales = np.where(grouped.max(axis=2) == largest, -largest, largest) / np.float32(half)
    # Denormal scales would divide to infinity; such a block is zero for every practical purpose.
    scales = as_stored(np.where(np.abs(scales) < _TINY, np.float32(1), scales))
    codes: Floats = np.divide(grouped, scales[:, :, None])
    np.rint(codes, out=codes)
    codes += np.float32(half)
    np.clip(codes, 0, 2 * half - 1, out=codes)
    return codes.astype(np.uint8), scales


def rounded_plainly(weight: LazyTensor, form: MatrixFormat) -> Blocks:
    """The matrix rounded to the nearest codes, symmetric, some rows at a time."""
    n, block_size = weight.shape[0], block_size_for(weight.shape[1], form.block_size)
    blocks = -(-weight.shape[1] // block_size)
    codes, scales = np.empty((n, blocks, block_size), np.uint8), np.empty((n, blocks), np.float32)

    def rounded(part: tuple[int, int, Floats]) -> None:
        start, stop, slab = part
        found = round_rows(slab, form.bits, block_size)
        codes[start:stop], scales[start:stop] = found.codes, found.scales

    for _ in in_threads(rounded, weight.slabs(_SLAB)):
        pass
    return Blocks(codes, scales, None, form.bits, weight.shape[1])


def packed(codes: Bytes, bits: int) -> Bytes:
    """Codes [..., count] as the operators store them, the first of each byte in its low bits: [..., bytes]."""
    if bits == 8:
        return codes
    if bits < 4:
        return _in_words(codes, bits)
    if codes.shape[-1] % 2:
        codes = np.pad(codes, [(0, 0)] * (codes.ndim - 1) + [(0, 1)], constant_values=middle(bits))
    pairs = np.ascontiguousarray(codes).view("<u2")
    bytes_twice = pairs >> 4
    bytes_twice |= pairs  # of 0x0h0l the low byte is 0xhl
    return bytes_twice.astype(np.uint8)


def packed_zeros(zeros: Bytes, bits: int) -> Bytes:
    """Zero points [..., blocks] of codes of so many bits, in 8 or 4 bits each."""
    return packed(zeros, 8 if bits == 8 else 4)


def _in_words(codes: Bytes, bits: int) -> Bytes:
    """Codes [n, blocks, 32] of 3 or 2 bits, as ``kernels/matmul/matrix.h`` says: [n, blocks, 4 * bits]."""
    n, blocks, _ = codes.shape
    c = np.moveaxis(codes.reshape(n, blocks, 4, 8), 3, 0)
    if bits == 2:
        words = [c[i] | c[i + 1] << 2 | c[i + 2] << 4 | c[i + 3] << 6 for i in (0, 4)]
    else:
        words = [c[0] | c[1] << 3 | c[6] << 6, c[2] | c[3] << 3 | c[7] << 6]
        words.append(c[4] | c[5] << 3 | c[6] >> 2 << 6 | c[7] >> 2 << 7)
    by_block = np.stack(words, axis=2)  # [n, blocks, words, 4]
    whole = blocks // _TOGETHER * _TOGETHER
    groups = by_block[:, :whole].reshape(n, -1, _TOGETHER, bits, 4).swapaxes(2, 3).reshape(n, -1)
    rest = by_block[:, whole:].swapaxes(1, 2).reshape(n, -1)
    return np.ascontiguousarray(np.concatenate([groups, rest], axis=1)).reshape(n, blocks, 4 * bits)


def widened(blocks: Blocks) -> Blocks:
    """The same values in codes of 4 bits, for stock operators; ``blocks`` itself where it has as many."""
    if blocks.bits >= 4:
        return blocks
    zeros = blocks.zeros
    if zeros is None:
        zeros = np.full(blocks.scales.shape, middle(blocks.bits), np.uint8)
    return replace(blocks, zeros=zeros, bits=4)


def stored_bits(shape: tuple[int, ...], form: MatrixFormat) -> int:
    """Bits that a matrix [n, k] takes in ``form``, with its scales and zeros."""
    n, k = shape
    if not form.block_size:
        return n * k * form.bits
    block_size = block_size_for(k, form.block_size)
    blocks = -(-k // block_size)
    zeros = 0 if form.symmetric else 8 * -(-blocks * (8 if form.bits == 8 else 4) // 8)
    return n * (blocks * (block_size * form.bits + 8 * SCALE.itemsize) + zeros)
