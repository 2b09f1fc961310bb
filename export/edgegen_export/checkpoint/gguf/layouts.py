"""Layouts: how a GGUF tensor becomes one or several of the original checkpoint's, without reading it.

llama.cpp rearranges some tensors for its own kernels when it converts a model; each layout undoes one of those.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from edgegen_export.checkpoint.lazy import LazyTensor


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
    """One for each head, or each expert, on the first axis; the original has a tensor for each, ``{n}`` in its name."""

    def apply(self, tensor: LazyTensor, parameter: str, heads: Heads) -> dict[str, LazyTensor]:
        return {
            f"{self.theirs.replace('{n}', str(n))}.{parameter}": tensor.take(n, n + 1).reshaped(tensor.shape[1:])
            for n in range(tensor.shape[0])
        }


@dataclass(frozen=True, slots=True)
class OneRow(Layout):
    """A vector, or a matrix of one row; the original has the latter."""

    def apply(self, tensor: LazyTensor, parameter: str, heads: Heads) -> dict[str, LazyTensor]:
        return {f"{self.theirs}.{parameter}": tensor.reshaped((1, tensor.shape[-1]))}


@dataclass(frozen=True, slots=True)
class OneChannel(Layout):
    """A kernel [channels, width] for each channel by itself; the original has an axis of one channel between."""

    def apply(self, tensor: LazyTensor, parameter: str, heads: Heads) -> dict[str, LazyTensor]:
        kernel = tensor.reshaped((tensor.shape[0], 1, tensor.shape[1])) if parameter == "weight" else tensor
        return {f"{self.theirs}.{parameter}": kernel}
