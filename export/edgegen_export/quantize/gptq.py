"""GPTQ: a matrix rounded column by column, each column's error compensated in the columns that are not yet rounded.

Frantar, Ashkboos, Hoefler and Alistarh, "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
Transformers", 2022 (arXiv:2210.17323). A block's scales are searched when its turn comes. As there, columns far
behind are updated for many columns at once: touching them is what takes the time.
"""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgegen.system import physical_cores
from edgegen_export.quantize.blockwise import Blocks, Floats, in_blocks
from edgegen_export.quantize.native import native_block
from edgegen_export.quantize.scale_search import search_with_numpy
from edgegen_export.scratch import Scratch
from edgegen_export.tensors.lazy import LazyTensor
from edgegen_export.threads import in_threads

DAMPING = 0.01
"""Share of the mean of the Hessian's diagonal that is added to it."""

_SLAB = 10 << 20
"""Bytes of the rows that are rounded together: a block of their columns is to stay in the processor's cache."""

_WORKERS = max(1, min(4, physical_cores() // 2))
"""Threads of a matrix, which is rounded to two formats at once; each holds some slabs."""

_TOGETHER = 128
"""Columns whose errors the columns of blocks far behind are told of at once."""

_PANEL = 256
"""Rows of a triangular matrix that are multiplied at once, up to their last column."""


def gptq(
    weight: LazyTensor,
    factor: Floats,
    bits: int,
    block_size: int,
    *,
    symmetric: bool,
    scratch: Scratch | None = None,
) -> Blocks:
    """``weight`` [n, k] in blocks, with least error of ``x @ weight.T`` for inputs x of which ``factor`` is the
    :func:`inverse_factor`, as far as rounding one column after the other can tell.

    Rows do not depend on each other: slabs of them are rounded on several cores. ``scratch``: where the codes are
    kept, by default in memory.
    """
    n, blocks = weight.shape[0], -(-weight.shape[1] // block_size)
    shape = (n, blocks, block_size)
    codes = np.empty(shape, np.uint8) if scratch is None else scratch.empty(shape, np.uint8)
    scales, zeros = np.empty((n, blocks), np.float32), np.empty((n, blocks), np.uint8)

    def rounded(part: tuple[int, int, Floats]) -> float:
        start, stop, slab = part
        rows, lost = _Rows(slab, factor, bits, block_size, symmetric=symmetric), 0.0
        for first in range(0, blocks * block_size, step := _TOGETHER // block_size * block_size):
            lost += rows.round_columns(first, min(first + step, blocks * block_size))
        here = slice(start, stop)
        codes[here] = rows.codes.T.reshape(-1, blocks, block_size)
        scales[here], zeros[here] = rows.scales.T, rows.zeros.T
        return lost

    slabs = -(-4 * n * weight.shape[1] // _SLAB)  # of equal size, for a small one takes as many steps as a large one
    lost = sum(in_threads(rounded, weight.slabs(4 * weight.shape[1] * -(-n // slabs)), _WORKERS), 0.0)
    return Blocks(codes, scales, None if symmetric else zeros, bits, weight.shape[1], lost=lost)


class _Rows:
    """Rows that are being rounded, columns first: ``codes`` [k, n], ``scales`` and ``zeros`` [blocks, n]."""

    def __init__(self, weight: Floats, factor: Floats, bits: int, block_size: int, *, symmetric: bool) -> None:
        n = len(weight)
        self._todo = in_blocks(weight, block_size).reshape(n, -1).T.copy()
        self._told = np.empty((min(_TOGETHER, len(self._todo)), n), np.float32)
        self._factor, self._bits, self._block_size, self._symmetric = factor, bits, block_size, symmetric
        self.codes = np.empty(self._todo.shape, np.uint8)
        self.scales = np.empty((len(self._todo) // block_size, n), np.float32)
        self.zeros = np.empty_like(self.scales)

    def round_columns(self, first: int, last: int) -> float:
        """Round columns first:last, whole blocks, and tell those behind; what is lost by it."""
        errors = np.empty((last - first, self._todo.shape[1]), np.float32)
        for start in range(first, last, self._block_size):
            stop = start + self._block_size
            self._round_block(start, stop, here := errors[start - first : stop - first])
            self._tell(here, slice(start, stop), range(stop, last))
        self._tell(errors, slice(first, last), range(last, len(self._todo)))
        return float(np.einsum("kn,kn->n", errors, errors).sum(dtype=np.float64))

    def _round_block(self, start: int, stop: int, errors: Floats) -> None:
        """Round a block column by column; ``errors``, by the diagonal of the factor, are written."""
        part, upper = self._todo[start:stop], self._factor[start:stop, start:stop]
        codes, block = self.codes[start:stop], start // self._block_size
        found = native_block(part, upper, self._bits, codes, errors, symmetric=self._symmetric)
        if found is None:
            found = round_with_numpy(part, upper, self._bits, codes, errors, symmetric=self._symmetric)
        self.scales[block], self.zeros[block] = found

    def _tell(self, errors: Floats, rows: slice, columns: range) -> None:
        """Take the ``errors`` of the columns ``rows`` out of ``columns``, some at a time, in a buffer that stays."""
        for first in columns[:: len(self._told)]:
            last = min(first + len(self._told), columns.stop)
            told = np.matmul(self._factor[rows, first:last].T, errors, out=self._told[: last - first])
            self._todo[first:last] -= told


def round_with_numpy(
    part: Floats, upper: Floats, bits: int, codes: NDArray[np.uint8], errors: Floats, *, symmetric: bool
) -> tuple[Floats, Floats]:
    """:func:`native_block` with NumPy."""
    inverse: Floats = np.reciprocal(np.diagonal(upper))
    scale, zero = search_with_numpy(part, inverse * inverse, bits, symmetric=symmetric)
    least, most = -zero, np.float32(2**bits - 1) - zero
    step, told = np.empty_like(scale), np.empty_like(part)
    for i, error in enumerate(errors):
        np.divide(part[i], scale, out=step)
        np.rint(step, out=step)
        np.maximum(step, least, out=step)
        np.minimum(step, most, out=step)
        codes[i] = step + zero
        np.multiply(step, scale, out=error)
        np.subtract(part[i], error, out=error)
        error *= inverse[i]
        part[i + 1 :] -= np.multiply(upper[i, i + 1 :, None], error, out=told[i + 1 :])
    return scale, zero


def inverse_factor(hessian: Floats, block_size: int) -> Floats:
    """The upper triangular U with ``U.T @ U`` the inverse of the damped Hessian ``x.T @ x`` [k, k], padded to whole
    blocks: float32. Only the upper triangle of ``hessian`` is read."""
    try:
        return _inverse_factor(hessian, block_size, np.dtype(np.float32))
    except np.linalg.LinAlgError:  # some inputs are too large beside others, damping or not
        return _inverse_factor(hessian, block_size, np.dtype(np.float64))


def _inverse_factor(hessian: Floats, block_size: int, dtype: np.dtype[Any]) -> Floats:
    k = len(hessian)
    columns = -(-k // block_size) * block_size
    # Seen from the other end: there U is lower triangular, the inverse of Cholesky's factor.
    damped: NDArray[Any] = np.eye(columns, dtype=dtype)
    damped[columns - k :, columns - k :] = hessian[::-1, ::-1]
    diagonal = np.einsum("ii->i", damped)
    diagonal[diagonal == 0] = 1  # a column that is always multiplied with zero
    diagonal += DAMPING * float(diagonal[columns - k :].mean(dtype=np.float64))
    _invert_cholesky(damped)
    return np.ascontiguousarray(damped[::-1, ::-1], np.float32)


def _invert_cholesky(matrix: NDArray[Any]) -> None:
    """The inverse of the Cholesky factor of ``matrix``, in its place, by halves: [[A, Bᵀ], [B, D]] has the factor
    [[L, 0], [C, M]] with C = B L⁻ᵀ and M that of D - C Cᵀ, and this the inverse [[L⁻¹, 0], [-M⁻¹ C L⁻¹, M⁻¹]]."""
    size = len(matrix)
    if size <= 64:
        lower = np.linalg.cholesky(matrix.astype(np.float64))
        matrix[:] = np.tril(np.linalg.inv(lower))
        return
    half = size // 2
    first, last, corner = matrix[:half, :half], matrix[half:, half:], matrix[half:, :half]
    _invert_cholesky(first)
    corner[:] = corner @ first.T
    for start in range(0, len(last), _PANEL):  # its upper triangle is not read
        rows = slice(start, start + _PANEL)
        last[rows, : start + _PANEL] -= corner[rows] @ corner[: start + _PANEL].T
    _invert_cholesky(last)
    corner[:] = corner @ first
    for start in range(len(last) // _PANEL * _PANEL, -1, -_PANEL):
        rows = slice(start, start + _PANEL)
        np.negative(last[rows, : start + _PANEL] @ corner[: start + _PANEL], out=corner[rows])
    matrix[:half, half:] = 0
