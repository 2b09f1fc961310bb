"""LazyTensor: a tensor described now and read later, in row slabs, always as float32."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from edgegen.errors import CheckpointError
from edgegen_export.tensors.mapped_file import MappedFile, byte_span
from edgegen_export.tensors.quantized_groups import Grouping, Groups

_BLOCK = 4 << 20  # bytes of a mapped file that one copy step may touch before its pages are given back
_COLUMNS = 32  # of a transposed matrix that are copied at once
_NEAR = 4  # rows closer than this are read in one piece
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


class LazyTensor(ABC):
    """An immutable description of a tensor.

    ``shape`` and ``dtype`` (as stored: ``"float32"``, ``"bfloat16"``, …) are known; values are read by
    ``rows``, ``read`` and ``slabs``, as float32 whatever is stored. ``transposed``, ``take`` and ``concat``
    describe another tensor and read nothing. Arrays may be views of the file: do not write into them.

    Reading raises ``CheckpointError`` for a stored dtype without a float32 meaning of its own (FP8, which needs a
    scale, and others).
    """

    __slots__ = ("_dtype", "_shape")

    def __init__(self, shape: tuple[int, ...], dtype: str) -> None:
        self._shape = shape
        self._dtype = dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        return self._shape

    @property
    def dtype(self) -> str:
        """Name of the stored dtype."""
        return self._dtype

    @property
    @abstractmethod
    def names(self) -> tuple[str, ...]:
        """Names in the checkpoint of the tensors this one is made of."""

    def __repr__(self) -> str:
        return f"LazyTensor(shape={self._shape}, dtype={self._dtype!r})"

    # Reading.

    def rows(self, start: int, stop: int) -> NDArray[np.float32]:
        """Rows ``start:stop`` of axis 0, float32, C-contiguous ``[stop - start, *shape[1:]]``.

        Raises ``IndexError`` outside ``0 ≤ start ≤ stop ≤ shape[0]``.
        """
        if not self._shape:
            raise IndexError("a 0-d tensor has no rows; use read()")
        _check_range(start, stop, self._shape[0])
        return self._slab(start, stop)

    def read(self) -> NDArray[np.float32]:
        """The whole tensor, float32, C-contiguous."""
        return self._slab(0, self._shape[0] if self._shape else 1)

    def slabs(self, max_bytes: int = 8 << 20) -> Iterator[tuple[int, int, NDArray[np.float32]]]:
        """``(start, stop, rows)`` over axis 0, each at most ``max_bytes`` of float32 (one row at least).

        The mapped pages of a slab are given back when the next one is asked for: about one slab is resident.
        Raises ``IndexError`` for a 0-d tensor.
        """
        if not self._shape:
            raise IndexError("a 0-d tensor has no rows; use read()")
        count = self._shape[0]
        row_bytes = 4 * math.prod(self._shape[1:])
        step = max(1, max_bytes // row_bytes) if row_bytes else max(1, count)
        for start in range(0, count, step):
            stop = min(start + step, count)
            try:
                yield start, stop, self._slab(start, stop)
            finally:
                self._release(start, stop)

    def release(self) -> None:
        """Give the mapped pages of this tensor back to the system; reading again maps them again."""
        self._release(0, self._shape[0] if self._shape else 1)

    def equals(self, other: LazyTensor) -> bool:
        """Whether both have the same shape and the same values, NaN being equal to NaN; read slab by slab."""
        if self._shape != other._shape:
            return False
        slabs = zip(self.slabs(), other.slabs(), strict=True)
        return all(np.array_equal(a, b, equal_nan=True) for (_, _, a), (_, _, b) in slabs)

    # Of a matrix whose rows are quantized in groups of columns.

    @property
    def grouping(self) -> Grouping | None:
        """How the rows are quantized; None where they are not, or are changed beyond what scales can say.

        Rows keep it when they are taken, reordered, concatenated with rows of the same grouping, or multiplied.
        """
        return None

    def groups(self) -> Groups:
        """Return the parts of the rows, unpacked. Raises ``ValueError`` where there is no ``grouping``."""
        raise ValueError("this tensor is not quantized in groups")

    # Describing other tensors.

    @abstractmethod
    def transposed(self) -> LazyTensor:
        """The 2-D tensor with its axes swapped. Raises ``ValueError`` unless 2-D."""

    @abstractmethod
    def take(self, start: int, stop: int, axis: int = 0) -> LazyTensor:
        """``start:stop`` of ``axis``. Raises ``IndexError`` outside the axis."""

    def affine(self, scale: float, shift: float = 0.0) -> LazyTensor:
        """``value · scale + shift`` of every value, computed in float32."""
        return self if (scale, shift) == (1.0, 0.0) else _Affine(self, scale, shift)

    def mapped(self, function: Callable[[NDArray[np.float32]], NDArray[np.float32]]) -> LazyTensor:
        """``function`` of every value, which sees any number of them at once; for vectors."""
        return _Mapped(self, function)

    def scaled(self, factors: NDArray[np.float32], axis: int = 0) -> LazyTensor:
        """Every value multiplied by the one of ``factors`` at its place on ``axis``, computed in float32.

        Raises ``ValueError`` unless there is a factor for every place.
        """
        if not 0 <= axis < len(self._shape) or factors.shape != (self._shape[axis],):
            raise ValueError(f"factors of shape {factors.shape} for axis {axis} of a tensor of shape {self._shape}")
        return _Scaled(self, factors, axis)

    def unit_rows(self) -> LazyTensor:
        """The matrix with each row divided by its Euclidean norm, computed in float32."""
        return _UnitRows(self)

    def reordered(self, rows: NDArray[np.intp]) -> LazyTensor:
        """Row ``rows[i]`` of this tensor as row i. Raises ``IndexError`` when a row is not there."""
        return _Reordered(self, rows)

    def reshaped(self, shape: tuple[int, ...]) -> LazyTensor:
        """The same values in the same order under another shape; unless they lie so in the file, each read reads all.

        Raises ``ValueError`` when the shapes have different sizes.
        """
        if math.prod(shape) != math.prod(self._shape):
            raise ValueError(f"shape {self._shape} cannot be seen as {shape}")
        return self if shape == self._shape else _Reshaped(self, shape)

    @staticmethod
    def concat(parts: Sequence[LazyTensor], axis: int = 0) -> LazyTensor:
        """``parts`` one after the other along ``axis``; the dtype is theirs, or float32 where they differ.

        Raises ``ValueError`` when there is no part, or when shapes differ in another axis.
        """
        if not parts:
            raise ValueError("nothing to concatenate")
        first = parts[0].shape
        if not 0 <= axis < len(first):
            raise IndexError(f"axis {axis} of a tensor of shape {first}")
        for part in parts:
            if _without(part.shape, axis) != _without(first, axis) or len(part.shape) != len(first):
                raise ValueError(f"shapes {first} and {part.shape} do not concatenate along axis {axis}")
        return parts[0] if len(parts) == 1 else _Concat(tuple(parts), axis)

    @staticmethod
    def from_array(array: NDArray[Any]) -> LazyTensor:
        """A tensor over an array in memory (not copied). Raises ``TypeError`` for non-numeric dtypes."""
        if array.dtype.kind not in "biuf" and array.dtype != _BFLOAT16:
            raise TypeError(f"{array.dtype} has no float32 reading")
        return ArrayTensor(array, name="array")

    # What the two kinds of tensor provide; the range is valid, and 0, 1 for a 0-d tensor.

    def _slab(self, start: int, stop: int) -> NDArray[np.float32]:
        borrowed = self._borrow(start, stop)
        if borrowed is not None:
            return borrowed
        out = np.empty((stop - start, *self._shape[1:]) if self._shape else (), np.float32)
        self._fill(out, start, stop)
        return out

    def _borrow(self, start: int, stop: int) -> NDArray[np.float32] | None:
        """The rows without a copy, where they already lie as aligned C-contiguous float32."""
        return None

    @abstractmethod
    def _fill(self, out: NDArray[np.float32], start: int, stop: int) -> None:
        """Copy the rows into ``out``, touching a bounded part of the file at a time."""

    @abstractmethod
    def _release(self, start: int, stop: int) -> None: ...


class ArrayTensor(LazyTensor):
    """A tensor over one array, usually a view of a mapped file; transposing and taking give other views."""

    __slots__ = ("_array", "_file", "_name", "_unreadable")

    def __init__(
        self,
        array: NDArray[Any],
        *,
        name: str,
        file: MappedFile | None = None,
        dtype: str | None = None,
        unreadable: str | None = None,
    ) -> None:
        """``unreadable`` names a stored format whose values are not read from here; ``array`` then has its bytes, or
        the shape alone."""
        super().__init__(array.shape, dtype or array.dtype.name)
        self._array = array.view()
        self._array.flags.writeable = False
        self._name = name
        self._file = file
        self._unreadable = unreadable

    @property
    def names(self) -> tuple[str, ...]:
        return (self._name,)

    @property
    def stored(self) -> NDArray[Any]:
        """The array as it is stored, not to be written to."""
        return self._array

    def as_bytes(self, dtype: str) -> ArrayTensor:
        """The bytes of the last axis, which lies in one piece, as values of ``dtype``."""
        array = self._array.view(np.uint8)
        return ArrayTensor(array, name=self._name, file=self._file, dtype=dtype, unreadable=self._unreadable)

    def transposed(self) -> ArrayTensor:
        _check_2d(self)
        return self._over(self._array.T)

    def take(self, start: int, stop: int, axis: int = 0) -> ArrayTensor:
        check_take(self, start, stop, axis)
        return self._over(self._array[(slice(None),) * axis + (slice(start, stop),)])

    def reshaped(self, shape: tuple[int, ...]) -> LazyTensor:
        by_copy = super().reshaped(shape)
        return by_copy if by_copy is self or not self._array.flags.c_contiguous else self.seen_as(shape)

    def seen_as(self, shape: tuple[int, ...]) -> ArrayTensor:
        """The values of an array that lies in one piece, under another shape of the same size."""
        return self._over(self._array.reshape(shape))

    def _over(self, array: NDArray[Any]) -> ArrayTensor:
        return ArrayTensor(array, name=self._name, file=self._file, dtype=self._dtype, unreadable=self._unreadable)

    def _rows_view(self, start: int, stop: int) -> NDArray[Any]:
        if self._unreadable is not None:
            raise CheckpointError(
                f"tensor {self._name!r} is stored as {self._unreadable}, which is not read: "
                "export a float32, float16 or bfloat16 checkpoint of this model"
            )
        return self._array[start:stop] if self._shape else self._array

    def _borrow(self, start: int, stop: int) -> NDArray[np.float32] | None:
        view = self._rows_view(start, stop)
        plain = view.dtype == np.float32 and view.dtype.isnative
        return view if plain and view.flags.c_contiguous and view.flags.aligned else None

    def _fill(self, out: NDArray[np.float32], start: int, stop: int) -> None:
        with np.errstate(over="ignore", invalid="ignore"):  # values are judged later, by name
            _copy(out, self._rows_view(start, stop), self._file)

    def _release(self, start: int, stop: int) -> None:
        if self._file is not None:
            self._file.release(self._array[start:stop] if self._shape else self._array)


class _Concat(LazyTensor):
    """Tensors one after the other along one axis."""

    __slots__ = ("_axis", "_parts")

    def __init__(self, parts: tuple[LazyTensor, ...], axis: int) -> None:
        shape = list(parts[0].shape)
        shape[axis] = sum(part.shape[axis] for part in parts)
        dtypes = {part.dtype for part in parts}
        super().__init__(tuple(shape), dtypes.pop() if len(dtypes) == 1 else "float32")
        self._parts = parts
        self._axis = axis

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for part in self._parts for name in part.names))

    @property
    def grouping(self) -> Grouping | None:
        if self._axis != 0:
            return None
        found = [part.grouping for part in self._parts]
        kinds = {replace(grouping, symmetric=True) if grouping else None for grouping in found}
        kind = kinds.pop()
        if kind is None or kinds:
            return None
        return replace(kind, symmetric=all(grouping is not None and grouping.symmetric for grouping in found))

    def groups(self) -> Groups:
        parts = [part.groups() for part in self._parts]
        dtypes = {part.scales.dtype for part in parts}
        dtype = dtypes.pop() if len(dtypes) == 1 else np.dtype(np.float32)
        return Groups(
            codes=np.concatenate([part.codes for part in parts]),
            scales=np.concatenate([part.scales.astype(dtype, copy=False) for part in parts]),
            zeros=np.concatenate([part.zeros for part in parts]),
        )

    def transposed(self) -> LazyTensor:
        _check_2d(self)
        return _Concat(tuple(part.transposed() for part in self._parts), 1 - self._axis)

    def take(self, start: int, stop: int, axis: int = 0) -> LazyTensor:
        check_take(self, start, stop, axis)
        if axis != self._axis:
            return _Concat(tuple(part.take(start, stop, axis) for part in self._parts), self._axis)
        met = [part.take(a, b, axis) for part, a, b, _ in self._overlaps(start, stop)]
        return LazyTensor.concat(met or [self._parts[0].take(0, 0, axis)], axis)

    def _overlaps(self, start: int, stop: int) -> Iterator[tuple[LazyTensor, int, int, int]]:
        """``(part, start, stop, offset)``: the ranges of the parts that make ``start:stop`` of the axis."""
        begin = 0
        for part in self._parts:
            end = begin + part.shape[self._axis]
            a, b = max(start, begin), min(stop, end)
            if a < b:
                yield part, a - begin, b - begin, a - start
            begin = end

    def _borrow(self, start: int, stop: int) -> NDArray[np.float32] | None:
        if self._axis == 0:
            for part, a, b, _ in self._overlaps(start, stop):
                return part._borrow(a, b) if b - a == stop - start else None
        return None

    def _fill(self, out: NDArray[np.float32], start: int, stop: int) -> None:
        if self._axis == 0:
            for part, a, b, at in self._overlaps(start, stop):
                part._fill(out[at : at + b - a], a, b)
            return
        for part, _, count, at in self._overlaps(0, self._shape[self._axis]):
            part._fill(out[(slice(None),) * self._axis + (slice(at, at + count),)], start, stop)

    def _release(self, start: int, stop: int) -> None:
        if self._axis == 0:
            for part, a, b, _ in self._overlaps(start, stop):
                part._release(a, b)
            return
        for part in self._parts:
            part._release(start, stop)


class _View(LazyTensor):
    """Base of tensors over another one: they have its names, and its rows unless they say otherwise."""

    __slots__ = ("_base",)

    def __init__(self, base: LazyTensor, shape: tuple[int, ...]) -> None:
        super().__init__(shape, base.dtype)
        self._base = base

    @property
    def names(self) -> tuple[str, ...]:
        return self._base.names

    def _release(self, start: int, stop: int) -> None:
        self._base._release(start, stop)


class _Affine(_View):
    """Every value of a tensor multiplied and shifted."""

    __slots__ = ("_scale", "_shift")

    def __init__(self, base: LazyTensor, scale: float, shift: float) -> None:
        super().__init__(base, base.shape)
        self._scale, self._shift = scale, shift

    @property
    def grouping(self) -> Grouping | None:
        return None if self._shift else self._base.grouping

    def groups(self) -> Groups:
        groups = self._base.groups()
        return replace(groups, scales=groups.scales.astype(np.float32) * np.float32(self._scale))

    def transposed(self) -> LazyTensor:
        return _Affine(self._base.transposed(), self._scale, self._shift)

    def take(self, start: int, stop: int, axis: int = 0) -> LazyTensor:
        return _Affine(self._base.take(start, stop, axis), self._scale, self._shift)

    def _fill(self, out: NDArray[np.float32], start: int, stop: int) -> None:
        self._base._fill(out, start, stop)
        with np.errstate(over="ignore", invalid="ignore"):  # values are judged later, by name
            out *= np.float32(self._scale)
            out += np.float32(self._shift)


class _Mapped(_View):
    """A function of every value of a tensor."""

    __slots__ = ("_function",)

    def __init__(self, base: LazyTensor, function: Callable[[NDArray[np.float32]], NDArray[np.float32]]) -> None:
        super().__init__(base, base.shape)
        self._function = function

    def transposed(self) -> LazyTensor:
        return _Mapped(self._base.transposed(), self._function)

    def take(self, start: int, stop: int, axis: int = 0) -> LazyTensor:
        return _Mapped(self._base.take(start, stop, axis), self._function)

    def _fill(self, out: NDArray[np.float32], start: int, stop: int) -> None:
        with np.errstate(all="ignore"):  # values are judged later, by name
            np.copyto(out, self._function(self._base._slab(start, stop)))


class _Scaled(_View):
    """The values of a tensor multiplied by factors along one axis."""

    __slots__ = ("_axis", "_factors")

    def __init__(self, base: LazyTensor, factors: NDArray[np.float32], axis: int) -> None:
        super().__init__(base, base.shape)
        self._factors, self._axis = factors, axis

    def transposed(self) -> LazyTensor:
        return _Scaled(self._base.transposed(), self._factors, 1 - self._axis)

    def take(self, start: int, stop: int, axis: int = 0) -> LazyTensor:
        factors = self._factors[start:stop] if axis == self._axis else self._factors
        return _Scaled(self._base.take(start, stop, axis), factors, self._axis)

    def _fill(self, out: NDArray[np.float32], start: int, stop: int) -> None:
        self._base._fill(out, start, stop)
        factors = self._factors[start:stop] if self._axis == 0 else self._factors
        with np.errstate(over="ignore", invalid="ignore"):  # values are judged later, by name
            out *= factors.reshape([-1 if a == self._axis else 1 for a in range(out.ndim)])


class _UnitRows(_View):
    """A matrix whose rows are divided by their norms."""

    __slots__ = ()

    def __init__(self, base: LazyTensor) -> None:
        _check_2d(base)
        super().__init__(base, base.shape)

    def transposed(self) -> LazyTensor:
        return self._by_factors().transposed()

    def take(self, start: int, stop: int, axis: int = 0) -> LazyTensor:
        return _UnitRows(self._base.take(start, stop)) if axis == 0 else self._by_factors().take(start, stop, axis)

    def _by_factors(self) -> LazyTensor:
        """The same, with the norms of all rows read."""
        factors = np.empty(self.shape[0], np.float32)
        for start, stop, rows in self._base.slabs():
            factors[start:stop] = _row_factors(rows)
        return self._base.scaled(factors)

    def _fill(self, out: NDArray[np.float32], start: int, stop: int) -> None:
        self._base._fill(out, start, stop)
        with np.errstate(over="ignore", invalid="ignore"):  # values are judged later, by name
            out *= _row_factors(out)[:, None]


def _row_factors(rows: NDArray[np.float32]) -> NDArray[np.float32]:
    """One by the norm of each row, which is at least 1e-12, as torch's ``normalize`` has it."""
    norms = np.sqrt(np.einsum("ij,ij->i", rows, rows, dtype=np.float64))
    return (1 / np.maximum(norms, 1e-12)).astype(np.float32)


class _Reshaped(_View):
    """A small tensor under another shape."""

    __slots__ = ()

    def transposed(self) -> LazyTensor:
        return self._now().transposed()

    def take(self, start: int, stop: int, axis: int = 0) -> LazyTensor:
        return self._now().take(start, stop, axis)

    def _now(self) -> LazyTensor:
        return ArrayTensor(self.read(), name=", ".join(self.names))

    def _fill(self, out: NDArray[np.float32], start: int, stop: int) -> None:
        whole = self._base.read().reshape(self.shape)
        np.copyto(out, whole[start:stop] if self.shape else whole)

    def _release(self, start: int, stop: int) -> None:
        self._base.release()


class Transposed(_View):
    """The transpose of a matrix that is stored row by row, made of the columns it needs."""

    __slots__ = ()

    def __init__(self, base: LazyTensor) -> None:
        _check_2d(base)
        super().__init__(base, base.shape[::-1])

    def transposed(self) -> LazyTensor:
        return self._base

    def take(self, start: int, stop: int, axis: int = 0) -> LazyTensor:
        check_take(self, start, stop, axis)
        return Transposed(self._base.take(start, stop, 1 - axis))

    def _fill(self, out: NDArray[np.float32], start: int, stop: int) -> None:
        for begin, end, slab in self._base.take(start, stop, axis=1).slabs(_BLOCK):
            out[:, begin:end] = slab.T

    def _release(self, start: int, stop: int) -> None:
        self._base.take(start, stop, axis=1).release()


class _Reordered(_View):
    """The rows of another tensor in another order."""

    __slots__ = ("_rows",)

    def __init__(self, base: LazyTensor, rows: NDArray[np.intp]) -> None:
        if rows.size and not 0 <= rows.min() <= rows.max() < base.shape[0]:
            raise IndexError(f"rows {rows.min()} to {rows.max()} of a tensor of shape {base.shape}")
        super().__init__(base, (len(rows), *base.shape[1:]))
        self._rows = rows

    @property
    def grouping(self) -> Grouping | None:
        return self._base.grouping

    def groups(self) -> Groups:
        groups = self._base.groups()
        return Groups(groups.codes[self._rows], groups.scales[self._rows], groups.zeros[self._rows])

    def transposed(self) -> LazyTensor:
        return Transposed(self)

    def take(self, start: int, stop: int, axis: int = 0) -> LazyTensor:
        check_take(self, start, stop, axis)
        if axis == 0:
            return _Reordered(self._base, self._rows[start:stop])
        return _Reordered(self._base.take(start, stop, axis), self._rows)

    def _spans(self, start: int, stop: int) -> Iterator[tuple[NDArray[np.intp], int, int]]:
        """``(positions, begin, end)``: wanted rows that lie close together, and the base's rows that hold them."""
        rows = self._rows[start:stop]
        order = np.argsort(rows, kind="stable")
        for near in np.split(order, np.flatnonzero(np.diff(rows[order]) > _NEAR) + 1):
            if near.size:
                yield near, int(rows[near[0]]), int(rows[near[-1]]) + 1

    def _fill(self, out: NDArray[np.float32], start: int, stop: int) -> None:
        rows = self._rows[start:stop]
        for near, begin, end in self._spans(start, stop):
            out[near] = self._base._slab(begin, end)[rows[near] - begin]

    def _release(self, start: int, stop: int) -> None:
        for _, begin, end in self._spans(start, stop):
            self._base._release(begin, end)


def _copy(out: NDArray[np.float32], view: NDArray[Any], file: MappedFile | None) -> None:
    """Copy ``view`` into ``out`` of its shape, in steps along the widest stride that stay in ``_BLOCK``."""
    span = byte_span(view)
    if file is None or span <= _BLOCK:
        _copy_near(out, view)
        if file is not None:
            file.release(view)
        return
    axis = max((a for a in range(view.ndim) if view.shape[a] > 1), key=lambda a: view.strides[a])
    count, stride = view.shape[axis], view.strides[axis]
    step = min(max(1, _BLOCK // stride), (count + 1) // 2)
    for start in range(0, count, step):
        cut = (slice(None),) * axis + (slice(start, start + step),)
        _copy(out[cut], view[cut], file)


def _copy_near(out: NDArray[np.float32], view: NDArray[Any]) -> None:
    """Copy ``view``; a transposed one some columns at a time, so that the lines it is read from stay in the cache."""
    if view.ndim != 2 or view.strides[0] >= view.strides[1]:
        np.copyto(out, view, casting="unsafe")
        return
    for first in range(0, view.shape[1], _COLUMNS):
        some = slice(first, first + _COLUMNS)
        np.copyto(out[:, some], view[:, some], casting="unsafe")


def _without(shape: tuple[int, ...], axis: int) -> tuple[int, ...]:
    return shape[:axis] + shape[axis + 1 :]


def _check_range(start: int, stop: int, count: int) -> None:
    if not 0 <= start <= stop <= count:
        raise IndexError(f"{start}:{stop} of an axis of {count}")


def check_take(tensor: LazyTensor, start: int, stop: int, axis: int) -> None:
    """Raises ``IndexError`` unless ``start:stop`` is a part of that axis."""
    if not 0 <= axis < len(tensor.shape):
        raise IndexError(f"axis {axis} of a tensor of shape {tensor.shape}")
    _check_range(start, stop, tensor.shape[axis])


def _check_2d(tensor: LazyTensor) -> None:
    if len(tensor.shape) != 2:
        raise ValueError(f"only 2-D tensors are transposed, this one has shape {tensor.shape}")
