"""UnpackedMatrix: base of matrices whose rows are unpacked where and when they are read."""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy

from edgegen_export.tensors.lazy import LazyTensor, Transposed, check_take

_STEP = 1 << 20
"""Values that are unpacked at a time."""


class UnpackedMatrix(LazyTensor):
    """Rows and columns ``start:stop`` of a matrix [out, in], all at first; only the rows asked for are unpacked."""

    __slots__ = ("_columns", "_name", "_rows", "_width")

    def __init__(self, shape: tuple[int, int], dtype: str, name: str) -> None:
        """``shape``: of the whole matrix."""
        super().__init__(shape, dtype)
        self._name = name
        self._rows, self._columns = (0, shape[0]), (0, shape[1])
        self._width = shape[1]

    @property
    def names(self) -> tuple[str, ...]:
        return (self._name,)

    def transposed(self) -> LazyTensor:
        return Transposed(self)

    def take(self, start: int, stop: int, axis: int = 0) -> LazyTensor:
        check_take(self, start, stop, axis)
        spans = [self._rows, self._columns]
        spans[axis] = spans[axis][0] + start, spans[axis][0] + stop
        part = copy(self)
        part._rows, part._columns = spans
        part._shape = tuple(last - first for first, last in spans)
        return part

    def _steps(self, start: int, stop: int) -> Iterator[tuple[int, int]]:
        """The rows ``start:stop`` of the whole matrix, some at a time."""
        step = max(1, _STEP // max(1, self._width))
        return ((at, min(at + step, stop)) for at in range(start, stop, step))
