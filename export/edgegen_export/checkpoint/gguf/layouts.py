"""Layouts: how a GGUF tensor becomes one or several of the original checkpoint's, without reading it.

llama.cpp rearranges some tensors for its own kernels when it converts a model; each layout undoes one of those.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgegen_export.tensors.lazy import LazyTensor
from edgegen_export.tensors.stacked import Stacked


class NetHeads(NamedTuple):
    """How many heads of keys and of values a gated delta net has, and how wide they are."""

    keys: int
    values: int
    key_size: int
    value_size: int

    @property
    def tiled(self) -> NDArray[np.intp]:
        """[values]: which of the file's heads of values is the original's first, second, …

        The original has those of a key together; the file has the first of every key, then the second of every key.
        """
        return np.arange(self.values).reshape(-1, self.keys).T.ravel()


class Heads(NamedTuple):
    """How many query and key-value heads there are, and how wide one is; ``net``: of a gated delta net.

    ``halved``: how many rows of a head are rotated in halves, where the original rotates neighbours.
    """

    queries: int
    keys: int
    size: int
    net: NetHeads = NetHeads(1, 1, 1, 1)
    halved: int = 0


@dataclass(frozen=True, slots=True)
class Layout(ABC):
    """``theirs``: the original module's name, a template with ``{i}`` for the layer."""

    theirs: str

    @abstractmethod
    def apply(self, tensor: LazyTensor, parameter: str, heads: Heads) -> dict[str, LazyTensor]:
        """The original tensors by name (with ``{i}``), as views.

        ``parameter``: ``weight`` or ``bias``, or nothing where the file's name has neither.

        Raises ``IndexError`` or ``ValueError`` when the tensor's shape does not fit ``heads``.
        """


@dataclass(frozen=True, slots=True)
class Same(Layout):
    """As it is; some files leave the name of a weight away."""

    def apply(self, tensor: LazyTensor, parameter: str, heads: Heads) -> dict[str, LazyTensor]:
        return {f"{self.theirs}.{parameter or 'weight'}": tensor}


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
class RotaryHalves(Layout):
    """Queries or keys whose rotated pairs are half of what is rotated apart; in the original a pair are neighbours.

    As it is in files that say no positions of pictures, which the others are arranged for.
    """

    def apply(self, tensor: LazyTensor, parameter: str, heads: Heads) -> dict[str, LazyTensor]:
        name, half = f"{self.theirs}.{parameter}", heads.halved // 2
        if not half:
            return {name: tensor}
        rows = np.arange(tensor.shape[0]).reshape(-1, heads.size)
        rotated = rows[:, : 2 * half].reshape(-1, 2, half).swapaxes(1, 2).reshape(-1, 2 * half)
        return {name: tensor.reordered(np.concatenate([rotated, rows[:, 2 * half :]], axis=1).ravel())}


@dataclass(frozen=True, slots=True)
class PerGroup(Layout):
    """All queries, then all keys, then all values; the original has the queries, key and value of a group together."""

    def apply(self, tensor: LazyTensor, parameter: str, heads: Heads) -> dict[str, LazyTensor]:
        return {f"{self.theirs}.{parameter}": _by_group(tensor, heads)}


def _by_group(tensor: LazyTensor, heads: Heads) -> LazyTensor:
    """All queries, all keys and all values as the queries, key and value of a group together."""
    rows = np.arange(tensor.shape[0]).reshape(-1, heads.size)  # [heads, size]
    queries, keys, values = np.split(rows, [heads.queries, heads.queries + heads.keys])
    groups = (queries.reshape(heads.keys, -1), keys, values)
    return tensor.reordered(np.concatenate(groups, axis=1).ravel())


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
        return {f"{self.theirs.replace('{n}', str(n))}.{parameter}": member for n, member in enumerate(members(tensor))}


@dataclass(frozen=True, slots=True)
class Unsqueezed(Layout):
    """The original's weight has one more axis, of size 1."""

    axis: int = 0

    def apply(self, tensor: LazyTensor, parameter: str, heads: Heads) -> dict[str, LazyTensor]:
        shape = (*tensor.shape[: self.axis], 1, *tensor.shape[self.axis :])
        return {f"{self.theirs}.{parameter}": tensor.reshaped(shape) if parameter == "weight" else tensor}


@dataclass(frozen=True, slots=True)
class Kernels(Layout):
    """Of each channel by itself, [channels, 1, width] in the original; files may have one more axis before these."""

    def apply(self, tensor: LazyTensor, parameter: str, heads: Heads) -> dict[str, LazyTensor]:
        return {f"{self.theirs}.{parameter}": tensor.reshaped((tensor.shape[-3], 1, tensor.shape[-1]))}


@dataclass(frozen=True, slots=True)
class Flat(Layout):
    """The original has a vector where the file has a matrix, and maybe no name of a parameter."""

    def apply(self, tensor: LazyTensor, parameter: str, heads: Heads) -> dict[str, LazyTensor]:
        name = f"{self.theirs}.{parameter}" if parameter else self.theirs
        return {name: tensor.reshaped((math.prod(tensor.shape),))}


@dataclass(frozen=True, slots=True)
class Rates(Layout):
    """By how much states decay, as the negative numbers they are; the original has the logarithms of their sizes.

    ``tiled``: one for each head of values of a gated delta net; ``matrix``: several for each channel; ``positive``: as
    their sizes; ``before``, ``after``: axes of size 1 that a vector has in the original.
    """

    tiled: bool = False
    matrix: bool = False
    positive: bool = False
    before: int = 0
    after: int = 0

    def apply(self, tensor: LazyTensor, parameter: str, heads: Heads) -> dict[str, LazyTensor]:
        vector = tensor if self.matrix else tensor.reshaped((math.prod(tensor.shape),))
        ordered = _of_values(vector, heads.net, 1) if self.tiled else vector
        shape = (*[1] * self.before, *ordered.shape, *[1] * self.after)
        return {self.theirs: ordered.affine(1.0 if self.positive else -1.0).mapped(np.log).reshaped(shape)}


@dataclass(frozen=True, slots=True)
class TiledValues(Layout):
    """Rows of the heads of values of a gated delta net, in the file's order; before them may be other rows.

    ``size``: rows of a head, as wide as its values by default. ``columns``: they are columns. ``axis``: where the
    original's weight has one more axis. ``parameter``: of a module that the original does not have.
    """

    size: int | None = None
    columns: bool = False
    axis: int | None = None
    parameter: bool = False

    def apply(self, tensor: LazyTensor, parameter: str, heads: Heads) -> dict[str, LazyTensor]:
        size = self.size or heads.net.value_size
        name = f"{self.theirs}_{parameter}" if self.parameter else f"{self.theirs}.{parameter}"
        if self.columns:
            return {name: _of_values(tensor.transposed(), heads.net, size).transposed()}
        ordered = _of_values(tensor, heads.net, size)
        if self.axis is not None:
            ordered = ordered.reshaped((*ordered.shape[: self.axis], 1, *ordered.shape[self.axis :]))
        return {name: ordered}


def _of_values(tensor: LazyTensor, net: NetHeads, size: int) -> LazyTensor:
    """``tensor`` with its last rows, ``size`` for each head of values, as the original has them."""
    if net.keys in (1, net.values):  # both orders are the same
        return tensor
    before = tensor.shape[0] - net.values * size
    if before < 0:
        raise ValueError(f"{net.values * size} rows of values were expected")
    rows = before + np.arange(net.values * size).reshape(net.values, size)[net.tiled].ravel()
    return tensor.reordered(np.concatenate([np.arange(before), rows]))


@dataclass(frozen=True, slots=True)
class Parameter(Layout):
    """A parameter without a module of its own: no ``.weight`` in the original's name, and ``_bias`` for a bias.

    Matrices of experts are [in, out] there. ``row``: a vector is [1, size] there.
    """

    row: bool = False

    def apply(self, tensor: LazyTensor, parameter: str, heads: Heads) -> dict[str, LazyTensor]:
        name = self.theirs if parameter == "weight" else f"{self.theirs}_{parameter}"
        if self.row:
            return {name: tensor.reshaped((1, math.prod(tensor.shape)))}
        if len(tensor.shape) < 3:
            return {name: tensor}
        return {name: Stacked.of([matrix.transposed() for matrix in members(tensor)])}


@dataclass(frozen=True, slots=True)
class Blends(Layout):
    """The shares of several blends, one after the other on the first axis; the original has a tensor for each of
    ``parts``, whose name stands for ``{part}``, with two axes before its own."""

    parts: str = ""

    def apply(self, tensor: LazyTensor, parameter: str, heads: Heads) -> dict[str, LazyTensor]:
        hidden = tensor.shape[-1]
        rows = tensor.reshaped((len(self.parts), hidden))
        return {
            self.theirs.replace("{part}", part): rows.take(k, k + 1).reshaped((1, 1, hidden))
            for k, part in enumerate(self.parts)
        }


@dataclass(frozen=True, slots=True)
class ByNetHead(Layout):
    """A parameter of each head that is a row in the original, and one vector here."""

    def apply(self, tensor: LazyTensor, parameter: str, heads: Heads) -> dict[str, LazyTensor]:
        return {self.theirs: tensor.reshaped((heads.net.keys, heads.net.key_size))}


@dataclass(frozen=True, slots=True)
class ExpertRows(Layout):
    """Matrices of experts on an axis; in the original one below the other, each ``transposed`` or as it is."""

    transposed: bool = False

    def apply(self, tensor: LazyTensor, parameter: str, heads: Heads) -> dict[str, LazyTensor]:
        matrices = members(tensor)
        return {self.theirs: LazyTensor.concat([one.transposed() for one in matrices] if self.transposed else matrices)}


@dataclass(frozen=True, slots=True)
class Joined:
    """One tensor of the original that is several of the file's; names are templates, ``parts`` those of layouts.

    ``in_turns``: rows are taken from the parts in turns, and not one part after the other; matrices of experts are then
    [in, out], as gpt-oss has them. What has an axis for the experts is joined expert by expert.
    """

    parts: tuple[str, ...]
    theirs: str
    in_turns: bool = False

    def apply(self, parts: Sequence[LazyTensor], heads: Heads) -> LazyTensor:
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


@dataclass(frozen=True, slots=True)
class GroupedHeads(Joined):
    """Queries, keys and values, which the file has apart; the original has those of a group together."""

    def apply(self, parts: Sequence[LazyTensor], heads: Heads) -> LazyTensor:
        return _by_group(LazyTensor.concat(parts), heads)


@dataclass(frozen=True, slots=True)
class PerLatentHead(Joined):
    """Matrices from a latent to each head's key, [heads, latent, key] in the file, and to its value, [heads, value,
    latent].

    In the original the rows of a head's key, and then those of its value, are together.
    """

    def apply(self, parts: Sequence[LazyTensor], heads: Heads) -> LazyTensor:
        if any(len(part.shape) != 3 or part.shape[0] != heads.queries for part in parts):
            raise ValueError(f"a matrix for each of {heads.queries} heads was expected")
        keys, values = map(members, parts)
        return LazyTensor.concat(
            [one for key, value in zip(keys, values, strict=True) for one in (key.transposed(), value)]
        )


@dataclass(frozen=True, slots=True)
class PerKeyHead(Joined):
    """The rows of a gated delta net: in the original the queries, keys, values and gates of a head of keys together.

    The file has all queries, all keys, all values in one part, and all gates in another.
    """

    def apply(self, parts: Sequence[LazyTensor], heads: Heads) -> LazyTensor:
        net, (rows, gates) = heads.net, parts
        keys, values = net.keys * net.key_size, net.values * net.value_size
        if (rows.shape[0], gates.shape[0]) != (2 * keys + values, values):
            raise ValueError(f"{2 * keys + values} and {values} rows were expected")
        order = np.arange(2 * keys + 2 * values)
        shares = np.split(order, [keys, 2 * keys, 2 * keys + values])
        together = np.concatenate([share.reshape(net.keys, -1) for share in shares], axis=1)
        return LazyTensor.concat([rows, gates]).reordered(together.ravel())


def members(stack: LazyTensor) -> list[LazyTensor]:
    """Return the members of a stack along its first axis."""
    return [stack.take(n, n + 1).reshaped(stack.shape[1:]) for n in range(stack.shape[0])]
