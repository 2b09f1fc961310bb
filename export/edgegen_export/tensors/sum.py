"""Sum: two tensors added up when they are read."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgegen_export.tensors.lazy import LazyTensor


class Sum(LazyTensor):
    """``first + second``, of one shape, in float32. Raises ``ValueError`` when the shapes differ."""

    __slots__ = ("_first", "_second")

    def __init__(self, first: LazyTensor, second: LazyTensor) -> None:
        if first.shape != second.shape:
            raise ValueError(f"tensors of shapes {first.shape} and {second.shape} are not added")
        super().__init__(first.shape, "float32")
        self._first, self._second = first, second

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*self._first.names, *self._second.names)))

    def transposed(self) -> LazyTensor:
        return Sum(self._first.transposed(), self._second.transposed())

    def take(self, start: int, stop: int, axis: int = 0) -> LazyTensor:
        return Sum(self._first.take(start, stop, axis), self._second.take(start, stop, axis))

    def _fill(self, out: NDArray[np.float32], start: int, stop: int) -> None:
        self._first._fill(out, start, stop)
        with np.errstate(over="ignore", invalid="ignore"):  # values are judged later, by name
            out += self._second._slab(start, stop)

    def _release(self, start: int, stop: int) -> None:
        self._first._release(start, stop)
        self._second._release(start, stop)
