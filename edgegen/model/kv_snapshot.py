"""KVSnapshot: a copy of one sequence's KV cache, for sessions and prefix caching."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class KVSnapshot:
    """
    Attributes:
        length: positions of the sequence.
        bases: for each cache class, the position that stands first in its arrays.
        arrays: key and value of every layer (k0, v0, k1, …), [kv_heads, length - base, head_dim].
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


class KVPrefix(NamedTuple):
    """A saved KV cache, of which the first ``length`` positions are those of a prompt."""

    snapshot: KVSnapshot
    length: int
