"""Activation rounding of ``MatMulNBits``: its error, measured on a matrix and some of its inputs, by block size."""

from dataclasses import replace

import numpy as np

from edgegen.bundle.manifest import MatrixFormat
from edgegen_export.quantize.blockwise import Floats, block_size_for, in_blocks

TOLERABLE = 0.015
"""Relative error that a healthy matrix stays below, most of them far."""

BEARABLE = 0.03
"""Relative error up to which the smallest blocks are better than no blocks."""

SMALLEST = 16
_SMALLER = (32, SMALLEST)


def bearable_format(x: Floats, weight: Floats, form: MatrixFormat) -> MatrixFormat | None:
    """``form`` with the largest block, up to its own, whose error on the inputs x [m, k] is tolerable; else with the
    smallest block; None where that block's error is too large as well."""
    error = 0.0
    for size in (form.block_size, *(size for size in _SMALLER if size < form.block_size)):
        form = replace(form, block_size=size)
        error = activation_error(x, weight, block_size_for(x.shape[1], size))
        if error <= TOLERABLE:
            return form
    return form if error <= BEARABLE else None


def activation_error(x: Floats, weight: Floats, block_size: int) -> float:
    """Relative error of ``x @ weight.T`` where each block of the inputs x [m, k] is rounded to int8: the mean over
    inputs, each by its own length."""
    lost = (rounded_inputs(x, block_size) - x) @ weight.T
    exact = np.linalg.norm(x @ weight.T, axis=1)
    return float((np.linalg.norm(lost, axis=1)[exact > 0] / exact[exact > 0]).mean()) if exact.any() else 0.0


def rounded_inputs(x: Floats, block_size: int) -> Floats:
    """x [m, k] as the operator takes it: the largest of each block on 127 steps."""
    blocks = in_blocks(x, block_size)
    scales = np.abs(blocks).max(axis=2, keepdims=True) / np.float32(127)
    rounded: Floats = np.rint(blocks / np.where(scales > 0, scales, 1)) * scales
    return rounded.reshape(len(x), -1)[:, : x.shape[1]]
