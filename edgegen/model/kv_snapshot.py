"""KVSnapshot: a copy of one sequence's KV cache, for sessions and prefix caching."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.manifest import KVSpec
from edgegen.system import fresh_memory

_ALIGNED = 64
_PAGES = 1 << 17
"""Bytes from which copies have memory of their own. Fewer would make many mappings, of which a process has 65,530."""


def copied(arrays: Iterable[NDArray[Any]]) -> tuple[NDArray[Any], ...]:
    """Copies of ``arrays``, in memory that goes back to the system with the last of them.

    The C library would keep it for the thread that asked, and generating runs in one thread after the other: each
    would keep as much.
    """
    arrays = tuple(arrays)
    places = list(accumulate((-(-array.nbytes // _ALIGNED) * _ALIGNED for array in arrays), initial=0))
    if places[-1] < _PAGES:
        return tuple(array.copy() for array in arrays)
    memory, copies = fresh_memory(places[-1]), list[NDArray[Any]]()
    for array, at in zip(arrays, places, strict=False):
        copy = np.ndarray(array.shape, array.dtype, memory, at)
        copy[...] = array
        copies.append(copy)
    return tuple(copies)


def swap_rows(one: NDArray[Any], other: NDArray[Any], spare: NDArray[np.uint8]) -> None:
    """Exchange the values of two arrays of one shape, by way of ``spare``: nothing is allocated."""
    kept = spare[: one.nbytes].view(one.dtype).reshape(one.shape)
    kept[...] = one
    one[...] = other
    other[...] = kept


@dataclass(frozen=True, slots=True, eq=False)
class KVSnapshot:
    """
    Attributes:
        length: positions of the sequence.
        bases: for each cache class, the position that stands first in its arrays.
        arrays: key and value of every layer (k0, v0, k1, …; a latent once), [kv_heads, length - base, row width].
        states: the fixed states of all layers, by the positions that a sequence can begin at; where there are any.
    """

    length: int
    bases: Mapping[str, int]
    arrays: tuple[NDArray[Any], ...]
    states: Mapping[int, tuple[NDArray[np.float32], ...]] = field(default_factory=dict[int, tuple[NDArray[Any], ...]])

    @property
    def nbytes(self) -> int:
        fixed = (array.nbytes for arrays in self.states.values() for array in arrays)
        return sum(array.nbytes for array in self.arrays) + sum(fixed)


def snapshot_problem(snapshot: KVSnapshot, spec: KVSpec, dtype: str) -> str | None:
    """Say how ``snapshot`` differs from one of a cache of ``spec``, whose arrays are ``dtype``; None if it fits."""
    length, bases = snapshot.length, snapshot.bases
    if bases.keys() != spec.classes.keys() or not all(0 <= base <= length for base in bases.values()):
        return "its KV cache begins elsewhere"
    held = [(one.kv_heads, length - bases[one.cache_class], spec.format.row_width(one.head_dim)) for one in spec.arrays]
    if [array.shape for array in snapshot.arrays] != held or any(array.dtype != dtype for array in snapshot.arrays):
        return "its KV cache has other shapes or types"
    states, fitting = snapshot.states, [(state.shape, np.dtype(np.float32)) for state in spec.fixed]
    for at, arrays in states.items():
        if not 0 < at <= length or [(array.shape, array.dtype) for array in arrays] != fitting:
            return "its fixed states have other shapes, types or positions"
    return None


class KVPrefix(NamedTuple):
    """A saved KV cache, of which the first ``length`` positions are those of a prompt."""

    snapshot: KVSnapshot
    length: int
