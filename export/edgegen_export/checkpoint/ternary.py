"""Ternary checkpoints (BitNet b1.58, arXiv:2402.17764): matrices of -1, 0 and 1 with one scale each.

Either they are packed, four values in a byte, the value plus 1: row i of the bytes has row i of the matrix in its
lowest bits, then the rows a quarter, a half and three quarters further down. Or they are stored as trained, and rounded
when the model is run: ``w · s`` to the nearest of the three, s being one by the mean magnitude of all (absmean).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray

from edgegen_export.checkpoint.base_names import BaseNames
from edgegen_export.tensors.lazy import LazyTensor

Floats = NDArray[np.float32]

_IN_A_BYTE = 4
_LEAST = np.float32(1e-5)
"""The least mean magnitude that is divided by."""


@dataclass(frozen=True, slots=True)
class Ternary:
    """``packed``: whether matrices are packed, or to be rounded; ``divides``: packed ones are divided by their scale
    (``BitLinear``), not multiplied with it."""

    packed: bool
    divides: bool


def ternary_matrices(
    tensors: Mapping[str, LazyTensor], ternary: Ternary, names: BaseNames
) -> tuple[dict[str, LazyTensor], list[str]]:
    """``tensors`` with matrices in the place of what they are made of, but for embedding and head; and what is wrong
    with them."""
    result, problems = dict(tensors), list[str]()
    for name, tensor in tensors.items():
        module, _, kind = name.rpartition(".")
        if kind != "weight" or len(tensor.shape) != 2 or names.bare(module) in (names.embedding, names.head):
            continue
        if not ternary.packed:
            result[name] = tensor.mapped(_Rounding(tensor))
            continue
        made = _unpacked(name, tensor, result.pop(f"{module}.weight_scale", None), divides=ternary.divides)
        if isinstance(made, str):
            problems.append(made)
        else:
            result[name] = made
    return result, problems


def _unpacked(name: str, packed: LazyTensor, scale: LazyTensor | None, *, divides: bool) -> LazyTensor | str:
    if packed.dtype != "uint8":
        return f"{name}: stored as {packed.dtype}, and uint8 expected, four values in a byte"
    if scale is None or scale.shape not in ((), (1,)):
        return f"{name}: has no weight_scale of one number"
    factor = np.float32(scale.read().reshape(()))
    if not np.isfinite(factor) or factor == 0:
        return f"{name}: its weight_scale is {factor}"
    factor = 1 / factor if divides else factor
    return LazyTensor.concat([packed.mapped(partial(_quarter, 2 * i, factor)) for i in range(_IN_A_BYTE)])


def _quarter(shift: int, scale: np.float32, stored: Floats) -> Floats:
    """Return the values of two bits of each byte."""
    codes: Floats = (stored.astype(np.uint8) >> shift & 3).astype(np.float32)
    return (codes - 1) * scale


class _Rounding:
    """Rounds values of a matrix to -1, 0 and 1 times its scale, which is found when it is first asked for."""

    def __init__(self, matrix: LazyTensor) -> None:
        self._matrix = matrix
        self._factor: np.float32 | None = None

    def __call__(self, values: Floats) -> Floats:
        if self._factor is None:
            total = sum(float(np.abs(rows).sum(dtype=np.float64)) for _, _, rows in self._matrix.slabs())
            size = self._matrix.shape[0] * self._matrix.shape[1]
            self._factor = 1 / max(np.float32(total / size), _LEAST)
        rounded: Floats = np.clip(np.rint(values * self._factor), np.float32(-1), np.float32(1))
        return rounded / self._factor
