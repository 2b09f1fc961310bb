"""Layouts: how a GGUF tensor becomes one or several of the original checkpoint's, without reading it.

llama.cpp rearranges some tensors for its own kernels when it converts a model; each layout undoes one of those.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from edgegen_export.checkpoint.lazy import LazyTensor
from edgegen_export.checkpoint.stacked import Stacked


class Heads(NamedTuple):
    """How many query and key-value heads there are, and how wide one is."""

    queries: int
    keys: int
    size: int


@dataclass(frozen=True, slots=True)
class Layout(ABC):
    """``theirs``: the original module's name, a template with ``{i}`` for the layer."""

    theirs: str

    @abstractmethod
    def apply(self, tensor: LazyTensor, parameter: str, heads: Heads) -> dict[str, LazyTensor]:
        """The original tensors by name (with ``{i}``), as views; ``parameter`` is ``weight`` or ``bias``.

        Raises ``IndexError`` or ``ValueError`` when the tensor's shape does not fit ``heads``.
        """


@dataclass(frozen=True, slots=True)
class Same(Layout):
    """As it is."""

    def apply(self, tensor: LazyTensor, parameter: str, heads: Heads) -> dict[str, LazyTensor]:
        return {f"{self.theirs}.{parameter}": tensor}


@dataclass(frozen=True, slots=True)
class InputFirst(Layout):
    """The original stores matrices as [in, out]."""

    def apply(self, tensor: LazyTensor, parameter: str, heads: Heads) -> dict[str, LazyTensor]:
        return {f"{self.theirs}.{parameter}": tensor.transposed() if parameter == "weight" else tensor}


@dataclass(frozen=True, slots=True)
class OnePlus(Layout):
    """A norm's factor is stored as the 1 + w it computes; the original stores w."""

    def apply(self, tensor: LazyTensor, parameter: str, heads: Heads) -> dict[str, LazyTensor]:
        return {f"{self.theirs}.{parameter}": tensor.affine(1.0, -1.0) if parameter == "weight" else tensor}


@dataclass(frozen=True, slots=True)
class RotaryPairs(Layout):
    """Queries or keys whose rotated pairs are neighbours; in the original a pair is half a head apart."""

    def apply(self, tensor: LazyTensor, parameter: str, heads: Heads) -> dict[str, LazyTensor]:
        rows = np.arange(tensor.shape[0]).reshape(-1, heads.size // 2, 2).swapaxes(1, 2).ravel()
        return {f"{self.theirs}.{parameter}": tensor.reordered(rows)}


@dataclass(frozen=True, slots=True)
class PerGroup(Layout):
    """All queries, then all keys, then all values; the original has the queries, key and value of a group together."""

    def apply(self, tensor: LazyTensor, parameter: str, heads: Heads) -> dict[str, LazyTensor]:
        rows = np.arange(tensor.shape[0]).reshape(-1, heads.size)  # [heads, size]
        queries, keys, values = np.split(rows, [heads.queries, heads.queries + heads.keys])
        groups = (queries.reshape(heads.keys, -1), keys, values)
        return {f"{self.theirs}.{parameter}": tensor.reordered(np.concatenate(groups, axis=1).ravel())}


@dataclass(frozen=True, slots=True)
class Fused(Layout):
    """Queries, keys and values in one; the original has three, ``{part}`` in its name is q, k, v."""

    def apply(self, tensor: LazyTensor, parameter: str, heads: Heads) -> dict[str, LazyTensor]:
        q, kv = heads.queries * heads.size, heads.keys * heads.size
        ranges = {"q": (0, q), "k": (q, q + kv), "v": (q + kv, q + 2 * kv)}
        if tensor.shape[0] != q + 2 * kv:
            raise ValueError(f"{q + 2 * kv} rows of queries, keys and values were expected")
        return {
            f"{self.theirs.replace('{part}', part)}.{parameter}": tensor.take(*rows) for part, rows in ranges.items()
        }


@dataclass(frozen=True, slots=True)
class Each(Layout):
    """One tensor for all heads or experts; the original has one for each of them, ``{n}`` in its name."""

    def apply(self, tensor: LazyTensor, parameter: str, heads: Heads) -> dict[str, LazyTensor]:
        return {
            f"{self.theirs.replace('{n}', str(n))}.{parameter}": tensor.take(n, n + 1).reshaped(tensor.shape[1:])
            for n in range(tensor.shape[0])
        }


@dataclass(frozen=True, slots=True)
class Unsqueezed(Layout):
    """The original's weight has one more axis, of size 1."""

    axis: int = 0

    def apply(self, tensor: LazyTensor, parameter: str, heads: Heads) -> dict[str, LazyTensor]:
        shape = (*tensor.shape[: self.axis], 1, *tensor.shape[self.axis :])
        return {f"{self.theirs}.{parameter}": tensor.reshaped(shape) if parameter == "weight" else tensor}


@dataclass(frozen=True, slots=True)
class Parameter(Layout):
    """A parameter without a module of its own: no ``.weight`` in the original's name, and ``_bias`` for a bias.

    Matrices of experts are [in, out] there.
    """

    def apply(self, tensor: LazyTensor, parameter: str, heads: Heads) -> dict[str, LazyTensor]:
        name = self.theirs if parameter == "weight" else f"{self.theirs}_{parameter}"
        if len(tensor.shape) < 3:
            return {name: tensor}
        return {name: Stacked.of([matrix.transposed() for matrix in members(tensor)])}


@dataclass(frozen=True, slots=True)
class Joined:
    """One tensor of the original that is several of the file's; names are templates, ``parts`` those of layouts.

    ``in_turns``: rows are taken from the parts in turns, and not one part after the other; matrices of experts are then
    [in, out], as gpt-oss has them. What has an axis for the experts is joined expert by expert.
    """

    parts: tuple[str, ...]
    theirs: str
    in_turns: bool = False

    def apply(self, parts: Sequence[LazyTensor]) -> LazyTensor:
        """Raises ``ValueError`` when the parts do not fit each other."""
        if not self.in_turns and len(parts[0].shape) == 2:
            return LazyTensor.concat(parts)
        apart = [members(part) for part in parts]
        joined = [self._one(together) for together in zip(*apart, strict=True)]
        return Stacked.of(joined)

    def _one(self, parts: Sequence[LazyTensor]) -> LazyTensor:
        whole = LazyTensor.concat(parts)
        if not self.in_turns:
            return whole
        turns = whole.reordered(np.arange(whole.shape[0]).reshape(len(parts), -1).T.ravel())
        return turns.transposed() if len(turns.shape) == 2 else turns


def members(stack: LazyTensor) -> list[LazyTensor]:
    """What lies on the first axis of a stack, one by one."""
    return [stack.take(n, n + 1).reshaped(stack.shape[1:]) for n in range(stack.shape[0])]
