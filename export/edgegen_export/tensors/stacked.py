"""Stacked: tensors of one shape under one more axis, each read alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgegen_export.tensors.lazy import LazyTensor, check_take


class Stacked(LazyTensor):
    """The matrices or vectors of experts under the shape [experts, ...]; one of them keeps what it can do."""

    __slots__ = ("_parts",)

    def __init__(self, parts: tuple[LazyTensor, ...], shape: tuple[int, ...]) -> None:
        super().__init__((len(parts), *shape), parts[0].dtype if parts else "float32")
        self._parts = parts

    @classmethod
    def of(cls, parts: Sequence[LazyTensor]) -> Stacked:
        """Raises ``ValueError`` unless there are parts, all of one shape."""
        if len({part.shape for part in parts}) != 1:
            raise ValueError("tensors of one shape can be stacked only")
        return cls(tuple(parts), parts[0].shape)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for part in self._parts for name in part.names))

    def transposed(self) -> LazyTensor:
        raise ValueError(f"only 2-D tensors are transposed, this one has shape {self.shape}")

    def take(self, start: int, stop: int, axis: int = 0) -> LazyTensor:
        check_take(self, start, stop, axis)
        if axis:
            return Stacked.of([part.take(start, stop, axis - 1) for part in self._parts])
        return Stacked(self._parts[start:stop], self.shape[1:])

    def reshaped(self, shape: tuple[int, ...]) -> LazyTensor:
        one_after_the_other = (self.shape[0] * self.shape[1], *self.shape[2:])
        return (
            LazyTensor.concat(self._parts) if self._parts and shape == one_after_the_other else super().reshaped(shape)
        )

    def _fill(self, out: NDArray[np.float32], start: int, stop: int) -> None:
        for at in range(start, stop):
            out[at - start] = self._parts[at].read()
            self._parts[at].release()

    def _release(self, start: int, stop: int) -> None:
        for part in self._parts[start:stop]:
            part.release()
