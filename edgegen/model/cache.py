"""Cache: the interface of KV caches."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from edgegen.model.kv_snapshot import KVSnapshot


class Cache(Protocol):
    """A KV cache of sequences, each in a slot; running sequences are in the first slots.

    A cache that keeps every position of a slot can be cut anywhere, and needs no checkpoints; others say otherwise.

    ``lengths``: int32 [slots], the valid positions of each slot; ``copied_bytes``: bytes moved so far.
    """

    lengths: NDArray[np.int32]
    copied_bytes: int

    @property
    def slots(self) -> int:
        return len(self.lengths)

    @property
    def nbytes(self) -> int:
        """Bytes that the KV cache takes."""
        ...

    def reserve(self, slots: int, length: int) -> None:
        """Have at least ``slots`` slots, with room for ``length`` positions in each if the cache is preallocated."""
        ...

    def bytes_for(self, slots: int, length: int) -> int:
        """Bytes of ``slots`` slots with ``length`` positions in each."""
        ...

    def fork(self, source: int, target: int) -> None:
        """Make slot ``target`` a copy of slot ``source``."""
        ...

    def swap(self, a: int, b: int) -> None:
        """Exchange two slots."""
        ...

    def save(self, slot: int) -> KVSnapshot:
        """A snapshot of ``slot``."""
        ...

    def restore(self, slot: int, snapshot: KVSnapshot, length: int) -> None:
        """Fill ``slot`` with the first ``length`` positions of ``snapshot``, which is of a cache like this; a length
        that :meth:`restorable_length` returns."""
        ...

    def truncatable_length(self, slot: int, length: int) -> int:
        """The longest length, ``length`` or less, that ``slot`` can be truncated to."""
        return length

    def restorable_length(self, snapshot: KVSnapshot, length: int) -> int:
        """The longest length, ``length`` or less, of which ``snapshot`` can fill a slot."""
        return length

    def checkpoint(self, slot: int, *, shared_prefix: bool = False) -> None:
        """Take a snapshot of the recurrent state, so that ``slot`` can be rolled back to here.

        ``shared_prefix``: other texts are likely to share this prefix; of many checkpoints, such stay longest.
        """

    def mark(self, slot: int, tokens: int) -> None:
        """As :meth:`checkpoint`, if need be, for a run of ``tokens`` of which all but the first may be rejected: the
        next mark takes the place of this one."""

    def compact(self, leaver: int, live: int) -> int:
        """Free slot ``leaver`` of ``live`` live ones by moving the last live slot into it; returns that slot."""
        last = live - 1
        if leaver != last:
            self.fork(last, leaver)
        self.truncate(last, 0)
        return last

    def truncate(self, slot: int, length: int) -> None:
        """Forget the positions of ``slot`` from ``length`` on; a length that :meth:`truncatable_length` returns."""
        ...
