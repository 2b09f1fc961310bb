"""GPTQ: a matrix rounded column by column, each column's error compensated in the columns that are not yet rounded.

Frantar, Ashkboos, Hoefler and Alistarh, "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
Transformers", 2022 (arXiv:2210.17323). A block's scales are searched when its turn comes, and so is what its columns
are told of those before them, from the triangular factor of the Hessian: with ``H = R Rᵀ`` and ``d`` what rounding took
from a row so far, the errors that the paper spreads are ``d R``. So nothing of H is inverted but small corners (Chee,
Cai, Kuleshov and De Sa, "QuIP", 2023, arXiv:2307.13304, show that the two are the same).
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgegen.system import physical_cores
from edgegen_export.files.scratch import Scratch
from edgegen_export.files.threads import in_threads
from edgegen_export.quantize.blockwise import Blocks, Floats
from edgegen_export.quantize.hessian import TOGETHER, Factor
from edgegen_export.quantize.native import native_block
from edgegen_export.quantize.scale_search import search_with_numpy
from edgegen_export.tensors.lazy import LazyTensor

_SLAB, _SMALL_SLAB, _SLABS = 10 << 20, 2 << 20, 4
"""Bytes of the rows that are rounded together, at most and at least: a block of their columns is to stay in the
processor's cache. A matrix of more has a multiple of ``_SLABS`` slabs, so that no core waits for the last one."""

_WORKERS = min(8, physical_cores())
"""Threads of a matrix; each holds some slabs."""

_TRANSPOSED = 16
"""Rows that are transposed at once, so that what is read and written stays in the cache."""


def gptq(
    weight: LazyTensor,
    factors: Sequence[Factor],
    bits: int,
    block_size: int,
    *,
    symmetric: bool,
    scratch: Scratch | None = None,
) -> Blocks:
    """``weight`` [n, k] in blocks, with least error of ``x @ weight.T`` for inputs x of which ``factors`` are those of
    the Hessian, as far as rounding one column after the other can tell.

    Rows do not depend on each other: slabs of them are rounded on several cores. ``scratch``: where the codes are
    kept, by default in memory.
    """
    n, blocks = weight.shape[0], -(-weight.shape[1] // block_size)
    shape = (n, blocks, block_size)
    codes = np.empty(shape, np.uint8) if scratch is None else scratch.empty(shape, np.uint8)
    scales, zeros = np.empty((n, blocks), np.float32), np.empty((n, blocks), np.uint8)

    def rounded(part: tuple[int, int, Floats]) -> float:
        start, stop, slab = part
        rows, lost, first = _Rows(slab, bits, block_size, symmetric=symmetric), 0.0, 0
        for factor in factors:
            lost += rows.round_group(first, factor)
            first += len(factor.upper)
        here = slice(start, stop)
        _transpose(rows.codes, codes[here].reshape(-1, blocks * block_size))
        scales[here], zeros[here] = rows.scales.T, rows.zeros.T
        return lost

    # Of equal size, for a small slab takes as many steps as a large one.
    slabs = _slabs(4 * n * weight.shape[1])
    lost = sum(in_threads(rounded, weight.slabs(4 * weight.shape[1] * -(-n // slabs)), _WORKERS), 0.0)
    return Blocks(codes, scales, None if symmetric else zeros, bits, weight.shape[1], lost=lost)


def _slabs(size: int) -> int:
    """Number of slabs of a matrix of ``size`` bytes."""
    few = -(-size // _SMALL_SLAB)
    return few if few < _SLABS else _SLABS * -(-size // (_SLABS * _SLAB))


def _transpose(matrix: NDArray[Any], out: NDArray[Any]) -> None:
    """Write ``matrix`` [m, n] transposed into ``out`` [n, m]."""
    for first in range(0, len(matrix), _TRANSPOSED):
        out[:, first : first + _TRANSPOSED] = matrix[first : first + _TRANSPOSED].T


class _Rows:
    """Rows that are being rounded, columns first: ``codes`` [k, n], ``scales`` and ``zeros`` [blocks, n]."""

    def __init__(self, weight: Floats, bits: int, block_size: int, *, symmetric: bool) -> None:
        n = len(weight)
        self._rows = np.zeros((-(-weight.shape[1] // block_size) * block_size, n), np.float32)
        _transpose(weight, self._rows[: weight.shape[1]])
        """[k, n]: weights, and of columns that are rounded what that took from them."""
        self._bits, self._block_size, self._symmetric = bits, block_size, symmetric
        self.codes = np.empty(self._rows.shape, np.uint8)
        self.scales = np.empty((len(self._rows) // block_size, n), np.float32)
        self.zeros = np.empty_like(self.scales)

    def round_group(self, begin: int, factor: Factor) -> float:
        """Round the columns from ``begin`` on that ``factor`` is for; what is lost by it."""
        lost, rows = 0.0, self._rows[begin : begin + len(factor.upper)]
        told, values = (np.empty((min(TOGETHER, len(rows)), rows.shape[1]), np.float32) for _ in "ab")
        for corner, first in zip(factor.corners, range(0, len(rows), TOGETHER), strict=True):
            last = first + len(corner)
            errors, part = told[: last - first], values[: last - first]
            np.matmul(factor.upper[:first, first:last].T, rows[:first], out=errors)
            np.matmul(corner.T, errors, out=part)
            part += rows[first:last]
            for start in range(0, len(corner), self._block_size):
                stop = start + self._block_size
                self._round_block(begin + first + start, part[start:stop], corner[start:stop], start, errors)
                part[stop:] -= corner[start:stop, stop:].T @ errors[start:stop]
            lost += float(np.einsum("kn,kn->n", errors, errors).sum(dtype=np.float64))
            self._take(begin + first, begin + last, part)
        return lost

    def _round_block(self, at: int, part: Floats, corner: Floats, start: int, errors: Floats) -> None:
        """Round the block of columns from ``at`` on, which are ``part`` now; its rows of ``errors`` are written."""
        stop, block = start + self._block_size, at // self._block_size
        upper, codes, here = corner[:, start:stop], self.codes[at : at + self._block_size], errors[start:stop]
        found = native_block(part, upper, self._bits, codes, here, symmetric=self._symmetric)
        if found is None:
            found = round_with_numpy(part, upper, self._bits, codes, here, symmetric=self._symmetric)
        self.scales[block], self.zeros[block] = found

    def _take(self, first: int, last: int, values: Floats) -> None:
        """Subtract what the columns first:last were rounded to; ``values`` are written."""
        blocks = slice(first // self._block_size, last // self._block_size)
        values[:] = self.codes[first:last]
        by_block = values.reshape(-1, self._block_size, values.shape[1])
        by_block -= self.zeros[blocks, None]
        by_block *= self.scales[blocks, None]
        self._rows[first:last] -= values


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
