"""LowRankUpdate: a matrix plus a product of two thin ones, computed row by row when it is read."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from edgegen_export.tensors.lazy import LazyTensor

_BLOCK = 4 << 20  # bytes of the product that are held at a time


class LowRankUpdate(LazyTensor):
    """``base + scaling · left @ right``: base [m, n], left [m, r], right [r, n], in float32.

    Reading rows holds these rows, a block of the product, and the factors' part in it; nothing stays.
    Raises ``ValueError`` when the shapes do not fit.
    """

    __slots__ = ("_base", "_left", "_right", "_scaling")

    def __init__(self, base: LazyTensor, left: LazyTensor, right: LazyTensor, scaling: float) -> None:
        shapes = base.shape, left.shape, right.shape
        if any(len(shape) != 2 for shape in shapes) or base.shape != (left.shape[0], right.shape[1]):
            raise ValueError(f"a product of {left.shape} and {right.shape} is not added to {base.shape}")
        if left.shape[1] != right.shape[0]:
            raise ValueError(f"shapes {left.shape} and {right.shape} have no product")
        super().__init__(base.shape, "float32")
        self._base = base
        self._left = left
        self._right = right
        self._scaling = np.float32(scaling)

    @property
    def base(self) -> LazyTensor:
        """The matrix without the product."""
        return self._base

    @property
    def rank(self) -> int:
        """Of the product, at most."""
        return self._right.shape[0]

    @property
    def factor_names(self) -> tuple[str, ...]:
        """Names of the factors in the checkpoint."""
        return (*self._left.names, *self._right.names)

    @property
    def update(self) -> LowRankUpdate:
        """The product alone."""
        return LowRankUpdate(
            LazyTensor.from_array(np.zeros(self.shape, np.float32)), self._left, self._right, float(self._scaling)
        )

    @property
    def names(self) -> tuple[str, ...]:
        return (*self._base.names, *self._left.names, *self._right.names)

    def transposed(self) -> LazyTensor:
        return LowRankUpdate(
            self._base.transposed(), self._right.transposed(), self._left.transposed(), float(self._scaling)
        )

    def take(self, start: int, stop: int, axis: int = 0) -> LazyTensor:
        base = self._base.take(start, stop, axis)
        left = self._left.take(start, stop) if axis == 0 else self._left
        right = self._right.take(start, stop, axis=1) if axis == 1 else self._right
        return LowRankUpdate(base, left, right, float(self._scaling))

    def _fill(self, out: NDArray[np.float32], start: int, stop: int) -> None:
        self._base._fill(out, start, stop)
        right = self._right.read()  # [r, n]
        step = max(1, _BLOCK // max(1, 4 * self.shape[1]))
        with np.errstate(all="ignore"):  # values are judged later, by name
            for at in range(start, stop, step):
                end = min(at + step, stop)
                product = self._left.rows(at, end) @ right
                product *= self._scaling
                out[at - start : end - start] += product

    def _release(self, start: int, stop: int) -> None:
        self._base._release(start, stop)
        self._left._release(start, stop)
        self._right.release()
