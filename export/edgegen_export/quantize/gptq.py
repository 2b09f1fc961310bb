"""GPTQ: a matrix rounded column by column, each column's error made up for by those that are still to come.

Frantar, Ashkboos, Hoefler and Alistarh, "GPTQ: Accurate Post-Training Quantization for Generative Pre-trained
Transformers", 2022 (arXiv:2210.17323). A block's scales are searched when its turn comes.
"""

import numpy as np
from numpy.typing import NDArray

from edgegen_export.checkpoint import LazyTensor
from edgegen_export.quantize.blockwise import Blocks, Bytes, Floats, in_blocks
from edgegen_export.quantize.scale_search import search_scales

Doubles = NDArray[np.float64]

DAMPING = 0.01
"""Share of the mean of the Hessian's diagonal that is added to it."""

_SLAB = 64 << 20
"""Bytes of the rows that are rounded together: fewer cost more calls, more cost memory where a vocabulary is large."""


def gptq(weight: LazyTensor, factor: Floats, bits: int, block_size: int, *, symmetric: bool) -> Blocks:
    """``weight`` [n, k] in blocks, with least error of ``x @ weight.T`` for inputs x of which ``factor`` is the
    :func:`inverse_factor`, as far as rounding one column after the other can tell."""
    n, blocks = weight.shape[0], -(-weight.shape[1] // block_size)
    codes = np.empty((n, blocks, block_size), np.uint8)
    scales, zeros = np.empty((n, blocks), np.float32), np.empty((n, blocks), np.uint8)
    for start, stop, slab in weight.slabs(_SLAB):
        here = slice(start, stop)
        codes[here], scales[here], zeros[here] = _rounded(slab, factor, bits, block_size, symmetric=symmetric)
    return Blocks(codes, scales, None if symmetric else zeros, bits, weight.shape[1])


def lost(weight: LazyTensor, blocks: Blocks, hessian: Floats) -> float:
    """``‖x @ (weight - values).T‖²`` for the inputs x whose ``x.T @ x`` is ``hessian``."""
    total = 0.0
    for start, stop, slab in weight.slabs(_SLAB):
        error = slab - blocks.rows(slice(start, stop)).values()
        total += float(np.einsum("nk,nk->", error @ hessian, error))
    return total


def _rounded(
    weight: Floats, factor: Floats, bits: int, block_size: int, *, symmetric: bool
) -> tuple[Bytes, Floats, Bytes]:
    """Codes [n, blocks, block_size], scales and zeros [n, blocks]."""
    n = len(weight)
    todo = in_blocks(weight, block_size).reshape(n, -1).T.copy()  # columns first: each is one piece
    codes = np.empty(todo.shape, np.uint8)
    blocks = len(todo) // block_size
    scales, zeros = np.empty((blocks, n), np.float32), np.empty((blocks, n), np.float32)
    diagonal = np.diagonal(factor)
    for block in range(blocks):
        start, stop = block * block_size, (block + 1) * block_size
        part, upper = todo[start:stop], factor[start:stop, start:stop]
        importance = diagonal[start:stop] ** -2
        scale, zero = search_scales(part.T, importance, bits, symmetric=symmetric)
        scales[block], zeros[block] = scale, zero
        errors = np.empty_like(part)
        for i in range(block_size):
            code = np.clip(np.rint(part[i] / scale) + zero, 0, 2**bits - 1)
            codes[start + i] = code
            errors[i] = (part[i] - (code - zero) * scale) / upper[i, i]
            part[i + 1 :] -= np.outer(upper[i, i + 1 :], errors[i])
        todo[stop:] -= factor[start:stop, stop:].T @ errors
    return codes.T.reshape(n, blocks, block_size), scales.T, zeros.T.astype(np.uint8)


def inverse_factor(hessian: Floats, block_size: int) -> Floats:
    """The upper triangular U with ``U.T @ U`` the inverse of the damped Hessian ``x.T @ x`` [k, k], padded to whole
    blocks: float32."""
    k = len(hessian)
    columns = -(-k // block_size) * block_size
    damped: Doubles = np.eye(columns)
    damped[:k, :k] = hessian
    diagonal = np.einsum("ii->i", damped)
    diagonal[diagonal == 0] = 1  # a column that is always multiplied with zero
    diagonal += DAMPING * float(diagonal[:k].mean())
    # H = R @ R.T with R upper triangular is Cholesky's factor seen from the other end; U is the inverse of R.
    factor = np.linalg.cholesky(damped[::-1, ::-1]).astype(np.float64, copy=False)[::-1, ::-1]
    del damped
    _invert_upper(factor)
    return np.ascontiguousarray(factor, np.float32)


def _invert_upper(matrix: Doubles) -> None:
    """In place, by halves: [[A, B], [0, D]] has the inverse [[A⁻¹, -A⁻¹ B D⁻¹], [0, D⁻¹]]."""
    size = len(matrix)
    if size <= 64:
        matrix[:] = np.triu(np.linalg.inv(matrix))
        return
    half = size // 2
    first, last, corner = matrix[:half, :half], matrix[half:, half:], matrix[:half, half:]
    _invert_upper(first)
    _invert_upper(last)
    np.negative(first @ corner @ last, out=corner)
