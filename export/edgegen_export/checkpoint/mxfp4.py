"""MXFP4 matrices of experts: 4-bit floats in blocks of 32 that share a power of two, read and taken as 8-bit codes.

A value is ±0, 0.5, 1, 1.5, 2, 3, 4 or 6 times the block's scale (OCP Microscaling Formats 1.0, 2023). Twice such a
value is a whole number, so that 8-bit codes with half the scale say exactly the same.
"""

from collections.abc import Mapping

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from edgegen_export.checkpoint.packing import MXFP4_BLOCK as BLOCK
from edgegen_export.tensors.lazy import ArrayTensor, LazyTensor
from edgegen_export.tensors.quantized_groups import Grouping, Groups
from edgegen_export.tensors.stacked import Stacked
from edgegen_export.tensors.unpacked_matrix import UnpackedMatrix

PARTS = ("blocks", "scales")
"""The tensors ``name_blocks`` and ``name_scales`` stand in the place of ``name``."""

_BYTES = BLOCK // 2
"""Bytes of a block."""
TWICE = np.array([0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12], np.int8)
"""Twice the value of each code; the first of a byte lies in its low bits."""
_BIAS, _NOT_A_NUMBER = 127, 255
MIDDLE = np.uint8(128)


class Mxfp4Matrix(UnpackedMatrix):
    """A matrix of such blocks."""

    __slots__ = ("_blocks", "_scales")

    def __init__(self, blocks: ArrayTensor, scales: ArrayTensor, *, name: str) -> None:
        """``blocks`` uint8 [out, in / 32, 16], ``scales`` uint8 [out, in / 32]: exponents of two, plus 127."""
        super().__init__((blocks.shape[0], scales.shape[1] * BLOCK), "mxfp4", name)
        self._blocks, self._scales = blocks, scales

    @property
    def grouping(self) -> Grouping | None:
        if self.shape[1] != self._width:
            return None
        return Grouping(bits=8, size=BLOCK, in_order=True, symmetric=True)

    def groups(self) -> Groups:
        codes = (self._twice(*self._rows) + np.int16(MIDDLE)).astype(np.uint8).reshape(self.shape)
        scales = self._halves(*self._rows).astype(ml_dtypes.bfloat16)
        self.release()
        return Groups(codes, scales, np.full(scales.shape, MIDDLE))

    # Of rows of the whole matrix.

    def _twice(self, start: int, stop: int) -> NDArray[np.int8]:
        """Twice the values of rows, without their scales: [rows, blocks, 32]."""
        stored: NDArray[np.uint8] = self._blocks.stored[start:stop]
        pairs = np.stack([stored & np.uint8(15), stored >> np.uint8(4)], axis=-1)
        return TWICE[pairs].reshape(*stored.shape[:2], BLOCK)

    def _halves(self, start: int, stop: int) -> NDArray[np.float32]:
        """Half the scales of rows: [rows, blocks]."""
        stored: NDArray[np.uint8] = self._scales.stored[start:stop]
        halves = np.ldexp(np.float32(1), stored.astype(np.int32) - _BIAS - 1)
        return np.where(stored == _NOT_A_NUMBER, np.float32(np.nan), halves)

    def _fill(self, out: NDArray[np.float32], start: int, stop: int) -> None:
        first = self._rows[0] + start
        for at, end in self._steps(first, self._rows[0] + stop):
            with np.errstate(over="ignore"):  # values are judged later, by name
                values = self._twice(at, end) * self._halves(at, end)[:, :, None]
            out[at - first : end - first] = values.reshape(end - at, -1)[:, slice(*self._columns)]
        self._release(start, stop)

    def _release(self, start: int, stop: int) -> None:
        first = self._rows[0]
        for part in (self._blocks, self._scales):
            part.take(first + start, first + stop).release()


def mxfp4_stacks(tensors: Mapping[str, LazyTensor]) -> tuple[dict[str, LazyTensor], list[str]]:
    """``tensors`` with one matrix in the place of each pair of blocks and scales; and what is wrong with such pairs."""
    result, problems = dict(tensors), list[str]()
    ends = tuple(f"_{part}" for part in PARTS)
    for name in sorted({name.removesuffix(end) for end in ends for name in tensors if name.endswith(end)}):
        blocks, scales = (result.pop(f"{name}_{part}", None) for part in PARTS)
        wrong = _misfits(name, blocks, scales)
        if name in tensors:
            wrong.append(f"{name}: stored twice, as floats and in MXFP4")
        problems += wrong
        if not wrong and isinstance(blocks, ArrayTensor) and isinstance(scales, ArrayTensor):
            result[name] = _stack(blocks, scales, f"{name}_blocks")
    return result, problems


def _stack(blocks: ArrayTensor, scales: ArrayTensor, name: str) -> Stacked:
    """The matrices of experts under the shape [experts, in, out] that they have as floats."""
    experts, rows, count = scales.shape

    def expert(number: int) -> LazyTensor:
        parts = (part.take(number, number + 1) for part in (blocks, scales))
        own = [
            _array(part.reshaped(shape))
            for part, shape in zip(parts, ((rows, count, _BYTES), (rows, count)), strict=True)
        ]
        return Mxfp4Matrix(*own, name=name).transposed()

    return Stacked(tuple(expert(number) for number in range(experts)), (count * BLOCK, rows))


def _misfits(name: str, blocks: LazyTensor | None, scales: LazyTensor | None) -> list[str]:
    if blocks is None or scales is None:
        return [f"{name}: has no {name.rpartition('.')[2]}_{'blocks' if blocks is None else 'scales'}"]
    problems = [
        f"{name}_{part}: stored as {tensor.dtype}, uint8 expected"
        for part, tensor in zip(PARTS, (blocks, scales), strict=True)
        if tensor.dtype != "uint8"
    ]
    if len(scales.shape) != 3 or blocks.shape != (*scales.shape, _BYTES):
        problems.append(
            f"{name}: blocks of shape {list(blocks.shape)} and scales of shape {list(scales.shape)} do not fit: "
            "[experts, rows, blocks, 16] and [experts, rows, blocks] expected"
        )
    return problems


def _array(tensor: LazyTensor) -> ArrayTensor:
    """A part of a stored array is one too, and so is another shape of a part that lies in one piece."""
    assert isinstance(tensor, ArrayTensor)
    return tensor
