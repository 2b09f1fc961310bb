"""PrefixCache: keys and values of texts that have left the engine's cache, for those that will begin alike."""

from collections.abc import Callable
from collections.abc import Sequence as Ids
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgegen.model.kv_snapshot import KVSnapshot


@dataclass(frozen=True, slots=True, eq=False)
class CachedText:
    """Ids whose keys and values are at hand.

    Attributes:
        ids: int64 [n].
        reusable: how many of them, from the first, another text may take over.
    """

    ids: NDArray[np.int64]
    reusable: int

    @classmethod
    def of(cls, ids: Ids[int], reusable: int) -> "CachedText":
        return cls(np.array(ids, np.int64), reusable)

    def shared_with(self, ids: NDArray[np.int64]) -> int:
        """How many ids from the first ``ids`` can take over."""
        n = min(self.reusable, len(ids))
        differing = np.flatnonzero(self.ids[:n] != ids[:n])
        return int(differing[0]) if differing.size else n


class PrefixCache:
    """Keeps the texts that were used last, as many as ``budget`` bytes hold."""

    def __init__(self, budget: int) -> None:
        self.budget = budget
        self._entries: list[tuple[CachedText, KVSnapshot]] = []  # the one used last is the last

    @property
    def nbytes(self) -> int:
        return sum(snapshot.nbytes for _, snapshot in self._entries)

    def add(self, text: CachedText, snapshot: KVSnapshot) -> None:
        """Keep ``text``, in place of those that are its beginning; forgets those not used for longest."""
        if snapshot.nbytes > self.budget:
            return
        self._entries = [entry for entry in self._entries if text.shared_with(entry[0].ids) < len(entry[0].ids)]
        self._entries.append((text, snapshot))
        while self.nbytes > self.budget:
            del self._entries[0]

    def find(
        self, ids: NDArray[np.int64], can_restore: Callable[[KVSnapshot, int], bool]
    ) -> tuple[int, KVSnapshot | None]:
        """How many ids from the first are kept, at most, and where."""
        longest, where = 0, None
        for text, snapshot in self._entries:
            length = text.shared_with(ids)
            if length > longest and can_restore(snapshot, length):
                longest, where = length, snapshot
        return longest, where

    def use(self, snapshot: KVSnapshot, length: int) -> None:
        """Somebody takes over ``length`` positions of ``snapshot``; if that is most of it, the text goes on there."""
        entry = next(entry for entry in self._entries if entry[1] is snapshot)
        self._entries.remove(entry)
        if not is_continued(length, entry[0]):
            self._entries.append(entry)


def is_continued(length: int, text: CachedText) -> bool:
    """Whether who takes over ``length`` ids of ``text`` goes on with it, so that it need not be kept besides."""
    return 2 * length >= len(text.ids)
