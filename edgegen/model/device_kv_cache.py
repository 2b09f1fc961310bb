"""DeviceKVCache: a KV cache in the memory of a GPU, in float16, that graphs read and append to in place.

As :class:`~edgegen.model.kv_cache.KVCache`, with one difference: layers with sliding-window attention keep every
position. Their operator looks at those in the window only.
"""

from collections.abc import Callable
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.manifest import KVSpec
from edgegen.model.cache import Cache
from edgegen.model.device import HALF, Device, DeviceArray, DeviceCopies, Place
from edgegen.model.kv_snapshot import KVSnapshot, copied

STEP = 256
"""Capacity is a multiple of this many positions: each growth copies all of the cache."""


class DeviceKVCache(Cache):
    """The cache of one runner.

    Attributes:
        lengths: int32 [slots], the positions of each slot so far.
        copied_bytes: bytes moved so far.
        version: changes whenever the arrays do; a caller that bound them binds again.
        capacity: positions that a slot may have before the cache grows.

    ``before_growth`` is called to drop bindings; otherwise the old arrays would stay alive. ``budget``: bytes that
    growth stays within, unless more is asked for.
    """

    def __init__(
        self,
        spec: KVSpec,
        max_context: int,
        device: Device,
        copies: DeviceCopies,
        before_growth: Callable[[], None],
        budget: int | None = None,
    ) -> None:
        self._spec = spec
        self._max_context = max_context
        self._device = device
        self._copies = copies
        self._before_growth = before_growth
        self._budget = budget
        self._arrays: list[DeviceArray] = []
        self.capacity = 0
        self.lengths = np.zeros(0, np.int32)
        self.copied_bytes = 0
        self.version = 0

    @property
    def nbytes(self) -> int:
        """Bytes reserved for the KV cache."""
        return sum(array.nbytes for array in self._arrays)

    def bytes_for(self, slots: int, length: int) -> int:
        """Bytes of ``slots`` slots with room for ``length`` positions."""
        per_position = sum(layer.kv_heads * layer.head_dim * HALF.itemsize for layer in self._spec.arrays)
        return slots * length * per_position

    def reserve(self, slots: int, length: int) -> None:
        """Make room for ``length`` positions in each of ``slots`` slots; may grow."""
        if slots <= self.slots and length <= self.capacity:
            return
        slots, capacity = max(slots, self.slots), self.capacity
        if length > capacity:
            wanted = -(-max(length, capacity * 3 // 2) // STEP) * STEP
            capacity = max(length, min(wanted, self._max_context))
            if self._budget is not None and self.bytes_for(slots, capacity) > self._budget:
                capacity = length
        self._grow(slots, capacity)

    def buffers(self, first: int, count: int) -> list[Place]:
        """Key and value of every layer (k0, v0, k1, …): ``count`` slots from ``first``."""
        return [array.slots(first, count) for array in self._arrays]

    def fork(self, source: int, target: int) -> None:
        for array in self._arrays:
            self._copy(array.slots(source, 1), array.slots(target, 1))
        self.lengths[target] = self.lengths[source]

    def swap(self, a: int, b: int) -> None:
        spare: DeviceArray | None = None
        for array in self._arrays:
            if spare is None or spare.shape[1:] != array.shape[1:]:
                spare = DeviceArray(self._device, (1, *array.shape[1:]))
            kept, one, other = spare.slots(0, 1), array.slots(a, 1), array.slots(b, 1)
            for source, target in ((one, kept), (other, one), (kept, other)):
                self._copy(source, target)
        self.lengths[a], self.lengths[b] = int(self.lengths[b]), int(self.lengths[a])

    def save(self, slot: int) -> KVSnapshot:
        """A copy of ``slot``, in the host's memory."""
        length = int(self.lengths[slot])
        whole = (self._copies.read(array.slots(slot, 1))[0] for array in self._arrays)
        arrays = tuple(chain.from_iterable(copied([array[:, :length]]) for array in whole))
        self.copied_bytes += sum(array.nbytes for array in arrays)
        return KVSnapshot(length, dict.fromkeys(self._spec.classes, 0), arrays)

    def restore(self, slot: int, snapshot: KVSnapshot, length: int) -> None:
        """Fill ``slot`` with the first ``length`` positions of ``snapshot``, which is of a cache like this."""
        self.reserve(slot + 1, length)
        for array, saved in zip(self._arrays, snapshot.arrays, strict=True):
            whole: NDArray[np.float16] = np.zeros((1, *array.shape[1:]), np.float16)
            whole[0, :, :length] = saved[:, :length]
            self._copies.write(whole, array.slots(slot, 1))
            self.copied_bytes += whole.nbytes
        self.lengths[slot] = length

    def truncate(self, slot: int, length: int) -> None:
        """Forget the positions of ``slot`` from ``length`` on; nothing is moved."""
        self.lengths[slot] = min(length, int(self.lengths[slot]))

    def _grow(self, slots: int, capacity: int) -> None:
        self._before_growth()
        self.version += 1  # first, and size last: an interrupted growth starts again
        held, grown = self.slots if int(self.lengths.max(initial=0)) else 0, list[DeviceArray]()
        filler: DeviceArray | None = None
        for n, layer in enumerate(self._spec.arrays):
            array = DeviceArray(self._device, (slots, layer.kv_heads, capacity, layer.head_dim))
            if held:
                old, more = self._arrays[n].slots(0, held), capacity - self.capacity
                if not more:
                    self._copy(old, array.slots(0, held))
                else:
                    if filler is None or filler.shape[1:] != (layer.kv_heads, more, layer.head_dim):
                        filler = DeviceArray(self._device, (held, layer.kv_heads, more, layer.head_dim))
                    self._copies.lengthened(old, filler.slots(0, held), array.slots(0, held))
                    self.copied_bytes += self._arrays[n].nbytes
            grown.append(array)
        self._arrays, self.capacity = grown, capacity
        self.lengths = np.concatenate([self.lengths, np.zeros(slots - self.slots, np.int32)])

    def _copy(self, source: Place, target: Place) -> None:
        self._copies.copy(source, target)
        self.copied_bytes += int(np.prod(source.shape)) * HALF.itemsize
