"""KVSnapshot: a copy of one sequence's KV cache, for sessions and prefix caching."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, eq=False)
class KVSnapshot:
    """
    Attributes:
        length: positions of the sequence.
        bases: for each cache class, the position that stands first in its arrays.
        arrays: key and value of every layer (k0, v0, k1, …), [kv_heads, length - base, head_dim].
    """

    length: int
    bases: Mapping[str, int]
    arrays: tuple[NDArray[Any], ...]

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in self.arrays)


class KVPrefix(NamedTuple):
    """A saved KV cache, of which the first ``length`` positions are those of a prompt."""

    snapshot: KVSnapshot
    length: int
