"""ScaledMatrix: a matrix stored as small numbers and scales of their blocks, dequantized where its rows are read."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from edgegen_export.checkpoint.stored_rows import StoredRows
from edgegen_export.tensors.quantized_groups import Grouping, Groups
from edgegen_export.tensors.unpacked_matrix import UnpackedMatrix

Floats = NDArray[np.float32]

_FLOAT32 = np.dtype(np.float32)


class Scales(Protocol):
    """A number for each block of a matrix, as a matrix of its own."""

    @property
    def shape(self) -> tuple[int, int]: ...

    def rows(self, start: int, stop: int) -> Floats:
        """A new array."""
        ...

    def release(self, start: int, stop: int) -> None: ...


@dataclass(frozen=True, slots=True, eq=False)
class Multiplied:
    """``scales`` times ``factor``, or divided by it."""

    scales: Scales
    factor: np.float32
    divided: bool = False

    @property
    def shape(self) -> tuple[int, int]:
        return self.scales.shape

    def rows(self, start: int, stop: int) -> Floats:
        rows = self.scales.rows(start, stop)
        with np.errstate(all="ignore"):  # values are judged later, by name
            return rows / self.factor if self.divided else rows * self.factor

    def release(self, start: int, stop: int) -> None:
        self.scales.release(start, stop)


@dataclass(frozen=True, slots=True, eq=False)
class ScaledParts:
    """A weight is ``(value - zero - zeros) * scale + offset``, with those of its block.

    ``scales``, ``zeros`` and ``offsets`` [row blocks, groups]; ``block_rows``: how many rows share them; ``group_of``
    [k]: the group of each column; ``group_size``: of how many consecutive columns a group is, None where its columns
    are in an order of their own. ``bits``: where values are whole numbers, those of the codes ``value + middle``.
    ``scale_dtype``: one that holds the scales.
    """

    values: StoredRows
    scales: Scales
    block_rows: int
    group_of: NDArray[np.intp]
    group_size: int | None
    zeros: Scales | None = None
    zero: int = 0
    offsets: Scales | None = None
    bits: int | None = None
    middle: int = 0
    scale_dtype: np.dtype[Any] = _FLOAT32

    def of_rows(self, grid: Scales, start: int, stop: int) -> Floats:
        """Return the values of ``grid`` for rows ``start:stop`` of the matrix: [stop - start, groups]."""
        first, last = start // self.block_rows, -(-stop // self.block_rows)
        found = grid.rows(first, last)
        return found if self.block_rows == 1 else found[np.arange(start, stop) // self.block_rows - first]

    def spread(self, ufunc: np.ufunc, values: Floats, grid: Floats) -> None:
        """``ufunc`` of each value and its group's of ``grid``, in place: [rows, k] and [rows, groups]."""
        groups, size = grid.shape[1], self.group_size
        if size is not None and groups * size == values.shape[1]:
            blocks = values.reshape(len(values), groups, size)
            ufunc(blocks, grid[:, :, None], out=blocks)
        else:
            ufunc(values, grid[:, self.group_of], out=values)

    def zero_codes(self, start: int, stop: int) -> Floats | None:
        """The codes of the zeros of rows ``start:stop``, [stop - start, groups]; None where they are no codes."""
        if self.bits is None:
            return None
        if self.offsets is not None:
            with np.errstate(all="ignore"):
                scales, offsets = (self.of_rows(grid, start, stop) for grid in (self.scales, self.offsets))
                zeros = np.where(offsets == 0, np.float32(0), -offsets / scales)
                exact = bool((np.rint(zeros) * scales == -offsets).all())
        else:
            zeros, exact = np.full((stop - start, self.scales.shape[1]), self.zero + self.middle, np.float32), True
            zeros += 0 if self.zeros is None else self.of_rows(self.zeros, start, stop)
        whole = exact and bool(((zeros >= 0) & (zeros < 1 << self.bits) & (zeros == np.rint(zeros))).all())
        return zeros if whole else None


class ScaledMatrix(UnpackedMatrix):
    """A matrix of such ``parts``."""

    __slots__ = ("_parts",)

    def __init__(self, parts: ScaledParts, *, name: str, dtype: str) -> None:
        super().__init__(parts.values.shape, dtype, name)
        self._parts = parts

    @property
    def grouping(self) -> Grouping | None:
        parts = self._parts
        zeros = parts.zero_codes(*self._rows)
        if parts.bits is None or zeros is None or self.shape[1] != self._width:
            return None
        return Grouping(
            bits=parts.bits,
            size=parts.group_size or int(np.bincount(parts.group_of).max(initial=1)),
            in_order=parts.group_size is not None,
            symmetric=bool((zeros == 1 << (parts.bits - 1)).all()),
        )

    def groups(self) -> Groups:
        (first, last), parts = self._rows, self._parts
        zeros = parts.zero_codes(first, last)
        if zeros is None:
            raise ValueError("this tensor is not quantized in groups")
        codes = np.empty(self.shape, np.uint8)
        for start, stop in self._steps(first, last):
            codes[start - first : stop - first] = parts.values.rows(start, stop) + np.float32(parts.middle)
        scales = parts.of_rows(parts.scales, first, last).astype(parts.scale_dtype)
        self.release()
        return Groups(codes, scales, zeros.astype(np.uint8))

    def _fill(self, out: NDArray[np.float32], start: int, stop: int) -> None:
        parts, first = self._parts, self._rows[0] + start
        for begin, end in self._steps(first, self._rows[0] + stop):
            values = parts.values.rows(begin, end)
            with np.errstate(all="ignore"):  # values are judged later, by name
                values -= np.float32(self._parts.zero)
                for ufunc, grid in ((np.subtract, parts.zeros), (np.multiply, parts.scales), (np.add, parts.offsets)):
                    if grid is not None:
                        parts.spread(ufunc, values, parts.of_rows(grid, begin, end))
            out[begin - first : end - first] = values[:, slice(*self._columns)]
            self._release(begin - self._rows[0], end - self._rows[0])

    def _release(self, start: int, stop: int) -> None:
        parts, first = self._parts, self._rows[0]
        parts.values.release(first + start, first + stop)
        blocks = (first + start) // parts.block_rows, -(-(first + stop) // parts.block_rows)
        for grid in (parts.scales, parts.zeros, parts.offsets):
            if grid is not None:
                grid.release(*blocks)
