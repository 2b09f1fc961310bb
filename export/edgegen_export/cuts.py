"""Cuts: how one checkpoint tensor becomes one or several of ours, without reading it.

Ours are always [out, in] for matrices. A cut says which shape the checkpoint's tensor must then have, and gives our
tensors as lazy views of it.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace

from edgegen_export.checkpoint import LazyTensor

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Cut(ABC):
    """``theirs``: the checkpoint's name, a template with ``{i}`` for the layer."""

    theirs: str

    @abstractmethod
    def shape(self, ours: Sequence[Shape]) -> Shape:
        """The shape the checkpoint's tensor must have for our tensors to have theirs."""

    @abstractmethod
    def apply(self, tensor: LazyTensor, ours: Sequence[Shape]) -> list[LazyTensor]:
        """Our tensors, as views of the checkpoint's."""

    def for_layer(self, layer: int) -> "Cut":
        """The cut with its template filled in."""
        return replace(self, theirs=self.theirs.format(i=layer))


@dataclass(frozen=True, slots=True)
class Same(Cut):
    """One tensor, as it is."""

    def shape(self, ours: Sequence[Shape]) -> Shape:
        return ours[0]

    def apply(self, tensor: LazyTensor, ours: Sequence[Shape]) -> list[LazyTensor]:
        return [tensor]


@dataclass(frozen=True, slots=True)
class Concatenated(Cut):
    """Several of ours, one after the other along the output axis; ``transposed`` if stored as [in, out]."""

    transposed: bool = False

    def shape(self, ours: Sequence[Shape]) -> Shape:
        joined = (sum(s[0] for s in ours), *ours[0][1:])
        return joined[::-1] if self.transposed else joined

    def apply(self, tensor: LazyTensor, ours: Sequence[Shape]) -> list[LazyTensor]:
        whole = tensor.transposed() if self.transposed else tensor
        ends = [sum(s[0] for s in ours[: k + 1]) for k in range(len(ours))]
        return [whole.take(end - shape[0], end) for end, shape in zip(ends, ours, strict=True)]


def transposed(theirs: str) -> Concatenated:
    """One tensor, stored as [in, out]."""
    return Concatenated(theirs, transposed=True)
