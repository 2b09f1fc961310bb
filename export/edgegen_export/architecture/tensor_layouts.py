"""Tensor layouts: how a checkpoint stores our tensors (transposed, fused, interleaved, per expert), read lazily.

Our matrices are always [out, in]. A layout names the checkpoint's tensors, gives the shape that each must have, and
returns our tensors as lazy views of them.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import accumulate, pairwise

import numpy as np

from edgegen_export.tensors.lazy import LazyTensor

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TensorLayout(ABC):
    """How one or more of our tensors are stored.

    ``theirs``: the checkpoint's name, a template with ``{i}`` for the layer.
    """

    theirs: str

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the checkpoint's tensors; most layouts have one."""
        return (self.theirs,)

    @abstractmethod
    def shape(self, ours: Sequence[Shape]) -> Shape:
        """The shape that each of the checkpoint's tensors must have, given ``ours``."""

    def shapes(self, ours: Sequence[Shape], found: Sequence[Shape | None]) -> Sequence[Shape]:
        """:meth:`shape` of each of them; ``found``: those that they have, None where one is missing."""
        return [self.shape(ours)] * len(found)

    @abstractmethod
    def apply(self, theirs: Sequence[LazyTensor], ours: Sequence[Shape]) -> list[LazyTensor]:
        """Our tensors, as views of the checkpoint's."""

    def for_layer(self, layer: int) -> "TensorLayout":
        """The layout with the layer's number filled in."""
        return replace(self, theirs=self.theirs.replace("{i}", str(layer)))


@dataclass(frozen=True, slots=True)
class Same(TensorLayout):
    """One tensor, stored as ours is."""

    def shape(self, ours: Sequence[Shape]) -> Shape:
        return ours[0]

    def apply(self, theirs: Sequence[LazyTensor], ours: Sequence[Shape]) -> list[LazyTensor]:
        return [theirs[0]]


@dataclass(frozen=True, slots=True)
class Concatenated(TensorLayout):
    """Several of ours, concatenated along the output axis; ``transposed`` if stored as [in, out]."""

    transposed: bool = False

    def shape(self, ours: Sequence[Shape]) -> Shape:
        joined = (sum(s[0] for s in ours), *ours[0][1:])
        return joined[::-1] if self.transposed else joined

    def apply(self, theirs: Sequence[LazyTensor], ours: Sequence[Shape]) -> list[LazyTensor]:
        whole = theirs[0].transposed() if self.transposed else theirs[0]
        return [whole.take(start, end) for start, end in pairwise(accumulate((s[0] for s in ours), initial=0))]


def transposed(theirs: str) -> Concatenated:
    """One tensor, stored as [in, out]."""
    return Concatenated(theirs, transposed=True)


@dataclass(frozen=True, slots=True)
class Interleaved(TensorLayout):
    """Several of ours in ``groups``: the first share of each along the output axis, then the second share of each…

    QKV fused head by head has ``groups`` = heads; with GQA a group is one key head, its value head and their query
    heads. ``stacked``: the groups have their own axis.
    """

    groups: int
    stacked: bool = False

    def shape(self, ours: Sequence[Shape]) -> Shape:
        rows, rest = sum(s[0] for s in ours), ours[0][1:]
        return (self.groups, rows // self.groups, *rest) if self.stacked else (rows, *rest)

    def apply(self, theirs: Sequence[LazyTensor], ours: Sequence[Shape]) -> list[LazyTensor]:
        assert all(shape[0] % self.groups == 0 for shape in ours), "ours are whole heads, and groups divide them"
        whole = theirs[0].reshaped((sum(s[0] for s in ours), *ours[0][1:]))
        shares = [shape[0] // self.groups for shape in ours]
        group = sum(shares)
        parts: list[LazyTensor] = []
        for k, share in enumerate(shares):
            starts = range(sum(shares[:k]), group * self.groups, group)
            parts.append(LazyTensor.concat([whole.take(at, at + share) for at in starts]))
        return parts


@dataclass(frozen=True, slots=True)
class SwappedHalves(Same):
    """One tensor, the second half of each of ``heads`` heads before the first.

    A head whose pairs (k, k + size/2) turn backwards is one with swapped halves whose pairs turn forwards.
    """

    heads: int

    def apply(self, theirs: Sequence[LazyTensor], ours: Sequence[Shape]) -> list[LazyTensor]:
        rows = np.arange(ours[0][0]).reshape(self.heads, 2, -1)
        return [theirs[0].reordered(rows[:, ::-1].ravel())]


@dataclass(frozen=True, slots=True)
class PairedHeads(Same):
    """One tensor, the first half of ``heads`` heads before the second: ours have one of each in turns."""

    heads: int

    def apply(self, theirs: Sequence[LazyTensor], ours: Sequence[Shape]) -> list[LazyTensor]:
        rows = np.arange(ours[0][0]).reshape(2, self.heads // 2, -1)
        return [theirs[0].reordered(rows.swapaxes(0, 1).ravel())]


@dataclass(frozen=True, slots=True)
class WithAxes(TensorLayout):
    """One vector, stored with axes of size 1: so many ``before`` its own, and ``after`` it."""

    before: int
    after: int

    def shape(self, ours: Sequence[Shape]) -> Shape:
        return (*[1] * self.before, *ours[0], *[1] * self.after)

    def apply(self, theirs: Sequence[LazyTensor], ours: Sequence[Shape]) -> list[LazyTensor]:
        return [theirs[0].reshaped(ours[0])]


@dataclass(frozen=True, slots=True)
class UnitRows(Same):
    """One matrix, stored before each row is divided by its norm."""

    def apply(self, theirs: Sequence[LazyTensor], ours: Sequence[Shape]) -> list[LazyTensor]:
        return [theirs[0].unit_rows()]


@dataclass(frozen=True, slots=True)
class Skipping(TensorLayout):
    """One tensor without its first ``rows`` rows."""

    rows: int

    def shape(self, ours: Sequence[Shape]) -> Shape:
        return (ours[0][0] + self.rows, *ours[0][1:])

    def apply(self, theirs: Sequence[LazyTensor], ours: Sequence[Shape]) -> list[LazyTensor]:
        return [theirs[0].take(self.rows, theirs[0].shape[0])]


@dataclass(frozen=True, slots=True)
class Leading(Same):
    """The first rows of one tensor: those behind them, of which there may be any number, pad it."""

    def shapes(self, ours: Sequence[Shape], found: Sequence[Shape | None]) -> Sequence[Shape]:
        rows, *rest = ours[0]
        return [shape if shape and [*shape[1:]] == rest and shape[0] > rows else ours[0] for shape in found]

    def apply(self, theirs: Sequence[LazyTensor], ours: Sequence[Shape]) -> list[LazyTensor]:
        return [theirs[0].take(0, ours[0][0])]


@dataclass(frozen=True, slots=True)
class InTurns(TensorLayout):
    """Several of ours, one after the other on an axis of ``count`` if there is more than one; in each, rows of ours
    stand in turns."""

    count: int = 1

    def shape(self, ours: Sequence[Shape]) -> Shape:
        rows, rest = sum(s[0] for s in ours), ours[0][1:]
        return (self.count, rows // self.count, *rest) if self.count > 1 else (rows, *rest)

    def apply(self, theirs: Sequence[LazyTensor], ours: Sequence[Shape]) -> list[LazyTensor]:
        whole, turns = theirs[0].reshaped((sum(s[0] for s in ours), *ours[0][1:])), len(ours)
        return [whole.reordered(np.arange(k, whole.shape[0], turns)) for k in range(turns)]


@dataclass(frozen=True, slots=True)
class SideBySide(TensorLayout):
    """One matrix, in ``count`` equal parts of its columns, which have an axis of their own before the rows."""

    count: int

    def shape(self, ours: Sequence[Shape]) -> Shape:
        rows, columns = ours[0]
        return (self.count, rows, columns // self.count)

    def apply(self, theirs: Sequence[LazyTensor], ours: Sequence[Shape]) -> list[LazyTensor]:
        _, *part = self.shape(ours)
        parts = [theirs[0].take(k, k + 1).reshaped((*part,)) for k in range(self.count)]
        return [LazyTensor.concat(parts, axis=1)]


@dataclass(frozen=True, slots=True)
class Nested(TensorLayout):
    """Several of ours, of four rows each: the outer two of each, one after the other, and the inner two; ``{n}`` in the
    template is what each is called."""

    parts: tuple[str, str]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.theirs.replace("{n}", name) for name in self.parts)

    def shape(self, ours: Sequence[Shape]) -> Shape:
        return (2 * len(ours), *ours[0][1:])

    def apply(self, theirs: Sequence[LazyTensor], ours: Sequence[Shape]) -> list[LazyTensor]:
        outer, inner = theirs
        starts = range(0, 2 * len(ours), 2)
        return [
            LazyTensor.concat([outer.take(k, k + 1), inner.take(k, k + 2), outer.take(k + 1, k + 2)]) for k in starts
        ]


@dataclass(frozen=True, slots=True)
class Stacked(TensorLayout):
    """Each row of ours is its own tensor, ``count`` in all; ``{n}`` in the template is the row."""

    count: int

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.theirs.replace("{n}", str(n)) for n in range(self.count))

    def shape(self, ours: Sequence[Shape]) -> Shape:
        return ours[0][1:]

    def apply(self, theirs: Sequence[LazyTensor], ours: Sequence[Shape]) -> list[LazyTensor]:
        return [LazyTensor.concat([tensor.reshaped((1, *tensor.shape)) for tensor in theirs])]


@dataclass(frozen=True, slots=True)
class Scattered(Stacked):
    """One of ours, split into ``count`` tensors along the output axis."""

    def shape(self, ours: Sequence[Shape]) -> Shape:
        return (ours[0][0] // self.count, *ours[0][1:])

    def apply(self, theirs: Sequence[LazyTensor], ours: Sequence[Shape]) -> list[LazyTensor]:
        return [LazyTensor.concat(theirs)]


@dataclass(frozen=True, slots=True)
class Joined(Same):
    """One of ours, in ``parts`` of so many rows along the output axis; ``{n}`` in the template is the name of a part.

    Transformers 5 writes parts of other sizes, which add up to the same rows in the same order.
    """

    parts: tuple[tuple[str, int], ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self.theirs.replace("{n}", name) for name, _ in self.parts)

    def shapes(self, ours: Sequence[Shape], found: Sequence[Shape | None]) -> Sequence[Shape]:
        rows, *rest = ours[0]
        sizes = [shape[0] for shape in found if shape and [*shape[1:]] == rest]
        sizes = sizes if len(sizes) == len(found) and sum(sizes) == rows else [size for _, size in self.parts]
        return [(size, *rest) for size in sizes]

    def apply(self, theirs: Sequence[LazyTensor], ours: Sequence[Shape]) -> list[LazyTensor]:
        return [LazyTensor.concat(theirs)]


@dataclass(frozen=True, slots=True)
class ExpertStack(TensorLayout):
    """Several of ours, one expert after the other on an axis of ``count``; matrices as [in, out].

    Of an expert, rows of ours stand in turns, or one matrix after the other where they are not ``in_turns``. Biases are
    [count, rows]. ``flat``: experts have no axis, their matrices stand one below the other.
    """

    count: int
    in_turns: bool = True
    flat: bool = False

    def shape(self, ours: Sequence[Shape]) -> Shape:
        first, *rest = self._of_one(ours)
        return (self.count * first, *rest) if self.flat else (self.count, first, *rest)

    def _of_one(self, ours: Sequence[Shape]) -> Shape:
        """The shape of one expert's share."""
        return (*ours[0][1:], sum(s[0] for s in ours) // self.count)

    def apply(self, theirs: Sequence[LazyTensor], ours: Sequence[Shape]) -> list[LazyTensor]:
        shape = self._of_one(ours)
        stack = theirs[0].reshaped((self.count, *shape))
        experts = [stack.take(e, e + 1).reshaped(shape) for e in range(self.count)]
        rows_first = [e.transposed() if len(shape) > 1 else e for e in experts]
        if not self.in_turns:
            ends = accumulate((s[0] // self.count for s in ours), initial=0)
            return [LazyTensor.concat([e.take(start, end) for e in rows_first]) for start, end in pairwise(ends)]
        whole, turns = LazyTensor.concat(rows_first), len(ours)
        return [whole.reordered(np.arange(k, whole.shape[0], turns)) if turns > 1 else whole for k in range(turns)]
