"""GPTQ: a matrix rounded column by column, each column's error compensated in the columns that are not yet rounded.

Frantar, Ashkboos, Hoefler and Alistarh, "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
Transformers", 2022 (arXiv:2210.17323). A block's scales are searched when its turn comes. As there, columns far
behind are updated for many columns at once: touching them is what takes the time.
"""

import numpy as np
from numpy.typing import NDArray

from edgegen.system import physical_cores
from edgegen_export.checkpoint import LazyTensor
from edgegen_export.quantize.blockwise import Blocks, Floats, in_blocks
from edgegen_export.quantize.scale_search import search_scales
from edgegen_export.scratch import Scratch
from edgegen_export.threads import in_threads

Doubles = NDArray[np.float64]

DAMPING = 0.01
"""Share of the mean of the Hessian's diagonal that is added to it."""

_SLAB = 8 << 20
"""Bytes of the rows that are rounded together: a block of their columns is to stay in the processor's cache."""

_WORKERS = max(1, min(4, physical_cores() // 2))
"""Threads of a matrix, which is rounded to two formats at once; each holds some slabs."""

_TOGETHER = 128
"""Columns whose errors the columns behind them are told of at once."""


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

    lost = sum(in_threads(rounded, weight.slabs(_SLAB), _WORKERS), 0.0)
    return Blocks(codes, scales, None if symmetric else zeros, bits, weight.shape[1], lost=lost)


class _Rows:
    """Rows that are being rounded, columns first: ``codes`` [k, n], ``scales`` and ``zeros`` [blocks, n]."""

    def __init__(self, weight: Floats, factor: Floats, bits: int, block_size: int, *, symmetric: bool) -> None:
        n = len(weight)
        self._todo = in_blocks(weight, block_size).reshape(n, -1).T.copy()
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
            self._todo[stop:last] -= self._factor[start:stop, stop:last].T @ here
        self._todo[last:] -= self._factor[first:last, last:].T @ errors
        return float(np.einsum("kn,kn->n", errors, errors).sum(dtype=np.float64))

    def _round_block(self, start: int, stop: int, errors: Floats) -> None:
        """Round a block column by column; ``errors``, by the diagonal of the factor, are written."""
        part, upper = self._todo[start:stop], self._factor[start:stop, start:stop]
        importance: Floats = np.diagonal(upper) ** -2
        scale, zero = search_scales(part, importance, self._bits, symmetric=self._symmetric)
        block, highest = start // self._block_size, np.float32(2**self._bits - 1)
        self.scales[block], self.zeros[block] = scale, zero
        code, told = np.empty_like(scale), np.empty_like(part)
        for i, column in enumerate(part):
            np.divide(column, scale, out=code)
            np.rint(code, out=code)
            code += zero
            np.maximum(code, 0, out=code)
            np.minimum(code, highest, out=code)
            self.codes[start + i] = code
            code -= zero
            code *= scale
            np.subtract(column, code, out=errors[i])
            errors[i] /= upper[i, i]
            part[i + 1 :] -= np.multiply(upper[i, i + 1 :, None], errors[i], out=told[i + 1 :])


def inverse_factor(hessian: Floats, block_size: int) -> Floats:
    """The upper triangular U with ``U.T @ U`` the inverse of the damped Hessian ``x.T @ x`` [k, k], padded to whole
    blocks: float32."""
    k = len(hessian)
    columns = -(-k // block_size) * block_size
    # Seen from the other end: there U is lower triangular, the inverse of Cholesky's factor.
    damped: Doubles = np.eye(columns)
    damped[columns - k :, columns - k :] = hessian[::-1, ::-1]
    diagonal = np.einsum("ii->i", damped)
    diagonal[diagonal == 0] = 1  # a column that is always multiplied with zero
    diagonal += DAMPING * float(diagonal[columns - k :].mean())
    _invert_cholesky(damped)
    return np.ascontiguousarray(damped[::-1, ::-1], np.float32)


def _invert_cholesky(matrix: Doubles) -> None:
    """The inverse of the Cholesky factor of ``matrix``, in its place, by halves: [[A, Bᵀ], [B, D]] has the factor
    [[L, 0], [C, M]] with C = B L⁻ᵀ and M that of D - C Cᵀ, and this the inverse [[L⁻¹, 0], [-M⁻¹ C L⁻¹, M⁻¹]]."""
    size = len(matrix)
    if size <= 64:
        matrix[:] = np.tril(np.linalg.inv(np.linalg.cholesky(matrix)))
        return
    half = size // 2
    first, last, corner = matrix[:half, :half], matrix[half:, half:], matrix[half:, :half]
    _invert_cholesky(first)
    corner[:] = corner @ first.T
    last -= corner @ corner.T
    _invert_cholesky(last)
    np.negative(last @ corner @ first, out=corner)
    matrix[:half, half:] = 0
