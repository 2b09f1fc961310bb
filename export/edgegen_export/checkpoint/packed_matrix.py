"""PackedMatrix: a matrix that GPTQ or AWQ quantized, dequantized where and when its rows are read."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgegen_export.checkpoint.packing import Packing
from edgegen_export.tensors.lazy import ArrayTensor
from edgegen_export.tensors.quantized_groups import Grouping, Groups
from edgegen_export.tensors.unpacked_matrix import UnpackedMatrix


@dataclass(frozen=True, slots=True, eq=False)
class PackedParts:
    """The stored tensors of one matrix. ``group_of`` [k]: the group of each column."""

    packing: Packing
    qweight: ArrayTensor
    qzeros: ArrayTensor
    scales: ArrayTensor
    group_of: NDArray[np.intp]

    @property
    def in_order(self) -> bool:
        """Whether groups are consecutive columns."""
        size = self.packing.group_size or len(self.group_of)
        return bool((self.group_of == np.arange(len(self.group_of)) // size).all())


class PackedMatrix(UnpackedMatrix):
    """A matrix of such ``parts``."""

    __slots__ = ("_parts",)

    def __init__(self, parts: PackedParts, *, name: str) -> None:
        shape = (parts.scales.shape[1], len(parts.group_of))
        super().__init__(shape, f"{parts.packing.method} {parts.packing.bits}-bit", name)
        self._parts = parts

    @property
    def grouping(self) -> Grouping | None:
        packing = self._parts.packing
        if self.shape[1] != self._width:
            return None
        zeros = packing.zeros(self._parts.qzeros.stored, *self._rows)
        return Grouping(
            bits=packing.bits,
            size=packing.group_size or self._width,
            in_order=self._parts.in_order,
            symmetric=bool((zeros == 1 << (packing.bits - 1)).all()),
        )

    def groups(self) -> Groups:
        first, last = self._rows
        codes = np.empty(self.shape, np.uint8)
        for start, stop in self._steps(first, last):
            codes[start - first : stop - first] = self._codes(start, stop)
        scales, zeros = self._scales(first, last).copy(), self._zeros(first, last)
        self.release()
        return Groups(codes, scales, zeros)

    # Of rows of the whole matrix.

    def _codes(self, start: int, stop: int) -> NDArray[np.uint8]:
        return self._parts.packing.codes(self._parts.qweight.stored, start, stop)[:, slice(*self._columns)]

    def _scales(self, start: int, stop: int) -> NDArray[Any]:
        return self._parts.scales.stored[:, start:stop].T

    def _zeros(self, start: int, stop: int) -> NDArray[np.uint8]:
        return self._parts.packing.zeros(self._parts.qzeros.stored, start, stop)

    def _fill(self, out: NDArray[np.float32], start: int, stop: int) -> None:
        first = self._rows[0] + start
        group_of = self._parts.group_of[slice(*self._columns)]
        for begin, end in self._steps(first, self._rows[0] + stop):
            part = out[begin - first : end - first]
            np.subtract(self._codes(begin, end), self._zeros(begin, end)[:, group_of], out=part, dtype=np.float32)
            with np.errstate(over="ignore", invalid="ignore"):  # values are judged later, by name
                part *= self._scales(begin, end).astype(np.float32)[:, group_of]
        self.release()

    def _release(self, start: int, stop: int) -> None:
        for part in (self._parts.qweight, self._parts.qzeros, self._parts.scales):
            part.release()
