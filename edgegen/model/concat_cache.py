"""ConcatCache: the KV cache of traced graphs, which return the whole past with the new positions at every step.

Each slot keeps the arrays [1, kv_heads, length, head_dim] that its last step returned, and passes them in at the next.
The arrays are never written to, so slots share them after a fork; only truncating a slot copies.
"""

import numpy as np

from edgegen.bundle.manifest import KVSpec
from edgegen.model.cache import Cache
from edgegen.model.kv_snapshot import KVSnapshot
from edgegen.model.ort_session import Buffer


class ConcatCache(Cache):
    """The cache of one runner.

    Attributes:
        lengths: int32 [slots], the valid positions of each slot.
        copied_bytes: bytes copied so far to truncate slots.
    """

    def __init__(self, spec: KVSpec) -> None:
        self._spec = spec
        self._empty = [Buffer(np.empty((1, x.kv_heads, 0, x.head_dim), spec.dtype)) for x in spec.layers for _ in "kv"]
        self._slots: list[list[Buffer]] = []
        self.lengths = np.zeros(0, np.int32)
        self.copied_bytes = 0

    @property
    def nbytes(self) -> int:
        """Bytes of the KV cache; arrays that slots share count once."""
        arrays = {id(buffer): buffer.array for slot in self._slots for buffer in slot}
        return sum(array.nbytes for array in arrays.values())

    def reserve(self, slots: int, length: int) -> None:
        """Have at least ``slots`` slots. Nothing is preallocated for ``length``: the graphs return new arrays."""
        missing = max(0, slots - self.slots)
        self._slots += [self._empty] * missing
        self.lengths = np.concatenate([self.lengths, np.zeros(missing, np.int32)])

    def bytes_for(self, slots: int, length: int) -> int:
        """Bytes of ``slots`` slots of ``length`` positions, and of the past of the one that runs."""
        return (slots + 1) * length * sum(self._spec.layer_bytes(layer) for layer in self._spec.layers)

    def past(self, slot: int) -> list[Buffer]:
        """Key and value of every layer (k0, v0, k1, …) of ``slot``, exactly as long as it is."""
        length = int(self.lengths[slot])
        if self._slots[slot][0].array.shape[2] != length:  # truncated
            self._slots[slot] = [self._cut(buffer, length) for buffer in self._slots[slot]]
        return self._slots[slot]

    def replace(self, slot: int, present: list[Buffer]) -> None:
        """Keep in ``slot`` what a step returned."""
        self._slots[slot] = present
        self.lengths[slot] = present[0].array.shape[2]

    def fork(self, source: int, target: int) -> None:
        """Make slot ``target`` a copy of slot ``source``; they share the arrays."""
        self._slots[target] = self._slots[source]
        self.lengths[target] = self.lengths[source]

    def swap(self, a: int, b: int) -> None:
        self._slots[a], self._slots[b] = self._slots[b], self._slots[a]
        self.lengths[a], self.lengths[b] = int(self.lengths[b]), int(self.lengths[a])

    def save(self, slot: int) -> KVSnapshot:
        """A snapshot of ``slot``, which shares its arrays."""
        arrays = tuple(buffer.array[0] for buffer in self.past(slot))
        return KVSnapshot(int(self.lengths[slot]), dict.fromkeys(self._spec.classes, 0), arrays)

    def restore(self, slot: int, snapshot: KVSnapshot, length: int) -> None:
        """Fill ``slot`` with the first ``length`` positions of ``snapshot``."""
        self.reserve(slot + 1, length)
        self.replace(slot, [Buffer(array[None]) for array in snapshot.arrays])
        self.truncate(slot, length)

    def truncate(self, slot: int, length: int) -> None:
        """Forget the positions of ``slot`` from ``length`` on; they are cut off when the slot is next read."""
        self.lengths[slot] = min(length, int(self.lengths[slot]))
        if not self.lengths[slot]:
            self._slots[slot] = self._empty

    def _cut(self, buffer: Buffer, length: int) -> Buffer:
        valid = buffer.array[:, :, :length].copy()
        self.copied_bytes += valid.nbytes
        return Buffer(valid)
