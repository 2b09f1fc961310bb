"""Cuts: how one checkpoint tensor becomes one or several of ours, without reading it.

Ours are always [out, in] for matrices. A cut says which shape the checkpoint's tensor must then have, and gives our
tensors as lazy views of it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from edgegen_export.checkpoint import LazyTensor

Shape = tuple[int, ...]


class Cut(Protocol):
    @property
    def theirs(self) -> str:
        """The checkpoint's name, a template with ``{i}`` for the layer."""
        ...

    def shape(self, ours: Sequence[Shape]) -> Shape:
        """The shape the checkpoint's tensor must have for our tensors to have theirs."""
        ...

    def apply(self, tensor: LazyTensor, ours: Sequence[Shape]) -> list[LazyTensor]: ...


@dataclass(frozen=True, slots=True)
class Same:
    """One tensor, as it is."""

    theirs: str

    def shape(self, ours: Sequence[Shape]) -> Shape:
        return ours[0]

    def apply(self, tensor: LazyTensor, ours: Sequence[Shape]) -> list[LazyTensor]:
        return [tensor]


@dataclass(frozen=True, slots=True)
class Concatenated:
    """Several of ours, one after the other along the output axis; ``transposed`` if stored as [in, out]."""

    theirs: str
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
