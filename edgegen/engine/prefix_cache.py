"""PrefixCache: prefix caching of finished sequences whose slot in the KV cache was needed for another."""

from collections.abc import Callable
from collections.abc import Sequence as Ids
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgegen.model.kv_snapshot import KVSnapshot


@dataclass(frozen=True, slots=True, eq=False)
class CachedPrefix:
    """Ids whose KV cache can be reused.

    Attributes:
        ids: int64 [n].
        reusable: how many of them, from the first, another sequence may reuse.
    """

    ids: NDArray[np.int64]
    reusable: int

    @classmethod
    def of(cls, ids: Ids[int], reusable: int) -> "CachedPrefix":
        return cls(np.array(ids, np.int64), reusable)

    def shared_with(self, ids: NDArray[np.int64]) -> int:
        """The length of the prefix that ``ids`` can reuse."""
        n = min(self.reusable, len(ids))
        differing = np.flatnonzero(self.ids[:n] != ids[:n])
        return int(differing[0]) if differing.size else n


class PrefixCache:
    """Keeps the most recently used sequences, as many as fit in ``budget`` bytes."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self._entries: list[tuple[CachedPrefix, KVSnapshot]] = []  # least recently used first

    @property
    def nbytes(self) -> int:
        return sum(snapshot.nbytes for _, snapshot in self._entries)

    def add(self, prefix: CachedPrefix, snapshot: KVSnapshot) -> None:
        """Keep ``prefix``, which replaces entries that it starts with; the least recently used are evicted."""
        if snapshot.nbytes > self.budget:
            return
        self._entries = [entry for entry in self._entries if prefix.shared_with(entry[0].ids) < len(entry[0].ids)]
        self._entries.append((prefix, snapshot))
        while self.nbytes > self.budget:
            del self._entries[0]

    def find(
        self, ids: NDArray[np.int64], restorable: Callable[[KVSnapshot, int], int]
    ) -> tuple[int, KVSnapshot | None]:
        """The longest cached prefix of ``ids``: its length and its snapshot.

        ``restorable``: how many positions of a snapshot can be reused, of at most the given number.
        """
        longest, where = 0, None
        for prefix, snapshot in self._entries:
            if (shared := prefix.shared_with(ids)) > longest and (length := restorable(snapshot, shared)) > longest:
                longest, where = length, snapshot
        return longest, where

    def longest(self, ids: NDArray[np.int64]) -> int:
        """The length of the longest prefix of ``ids`` that an entry has, reusable or not."""
        return max((prefix.shared_with(ids) for prefix, _ in self._entries), default=0)

    def use(self, snapshot: KVSnapshot, length: int) -> None:
        """A sequence reuses ``length`` positions of ``snapshot``; one that continues it replaces it."""
        entry = next(entry for entry in self._entries if entry[1] is snapshot)
        self._entries.remove(entry)
        if not is_continued(length, entry[0]):
            self._entries.append(entry)


def is_continued(length: int, prefix: CachedPrefix) -> bool:
    """Whether a sequence that reuses ``length`` ids of ``prefix`` continues it, so that it need not be kept as well."""
    return 2 * length >= len(prefix.ids)
