"""KVCache: keys and values in contiguous slots, grown as needed, read and appended to in place by the graphs.

Each layer keeps two arrays [slots, kv_heads, capacity, head_dim]. A row of a batch is a slot; the live rows are the
first ones, so that a decode step over n rows is a view of the first n slots. Positions beyond a slot's length are
never read. Memory is moved only by the named operations ``grow``, ``fork`` and ``compact``, which count what they copy.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgegen.manifest import KVSpec
from edgegen.ort_session import Buffer

STEP = 64
"""Capacity is a multiple of this many positions."""


class KVCache:
    """The cache of one runner.

    Attributes:
        lengths: int32 [slots], the valid positions of each slot.
        copied_bytes: bytes moved so far by the named operations.
        version: changes whenever the arrays do; whoever bound views of them binds again.

    ``before_growth`` is called to let go of such views, or the old arrays would outlive their move.
    """

    def __init__(self, spec: KVSpec, max_context: int, before_growth: Callable[[], None] = lambda: None) -> None:
        self._spec = spec
        self._max_context = max_context
        self._before_growth = before_growth
        self._arrays: list[NDArray[Any]] = [self._empty(layer, 0, 0) for layer in range(2 * len(spec.layers))]
        self._capacity = 0
        self._views: dict[tuple[int, int], list[Buffer]] = {}
        self.lengths = np.zeros(0, np.int32)
        self.copied_bytes = 0
        self.version = 0

    @property
    def slots(self) -> int:
        return len(self.lengths)

    @property
    def capacity(self) -> int:
        """Positions each slot has room for."""
        return self._capacity

    @property
    def nbytes(self) -> int:
        """Bytes reserved for keys and values."""
        return sum(array.nbytes for array in self._arrays)

    def reserve(self, slots: int, length: int) -> None:
        """Make room for ``length`` positions in each of ``slots`` slots; grows when there is not.

        Growth is by half at least, so that the copies of a long generation stay a constant share of its work.
        """
        if slots <= self.slots and length <= self.capacity:
            return
        capacity = self.capacity
        if length > capacity:
            wanted = -(-max(length, capacity * 3 // 2) // STEP) * STEP
            capacity = max(length, min(wanted, self._max_context))
        self.grow(max(slots, self.slots), capacity)

    def grow(self, slots: int, capacity: int) -> None:
        """Move to larger arrays, layer by layer: the valid positions of every slot are copied."""
        longest = int(self.lengths.max(initial=0))
        self._views.clear()
        self._before_growth()
        self.version += 1  # first, and size last: a growth that is interrupted is begun again
        for i, old in enumerate(self._arrays):
            new = self._empty(i, slots, capacity)
            valid = old[: self.slots, :, :longest]
            new[: self.slots, :, :longest] = valid
            self.copied_bytes += valid.nbytes
            self._arrays[i] = new
        self._capacity = capacity
        self.lengths = np.concatenate([self.lengths, np.zeros(slots - self.slots, np.int32)])

    def fork(self, source: int, target: int) -> None:
        """Make slot ``target`` a copy of slot ``source``."""
        length = int(self.lengths[source])
        for array in self._arrays:
            array[target, :, :length] = array[source, :, :length]
            self.copied_bytes += array[source, :, :length].nbytes
        self.lengths[target] = length

    def compact(self, leaver: int, live: int) -> int:
        """Free slot ``leaver`` of ``live`` live ones by moving the last live slot into it; returns that slot."""
        last = live - 1
        if leaver != last:
            self.fork(last, leaver)
        self.lengths[last] = 0
        return last

    def truncate(self, slot: int, length: int) -> None:
        """Forget the positions of ``slot`` from ``length`` on; nothing is moved."""
        self.lengths[slot] = min(length, int(self.lengths[slot]))

    def buffers(self, first: int, count: int) -> list[Buffer]:
        """Key and value of every layer (k0, v0, k1, …), slots ``first`` to ``first + count``, as bindable views."""
        key = (first, count)
        if key not in self._views:
            self._views[key] = [Buffer(array[first : first + count]) for array in self._arrays]
        return self._views[key]

    def _empty(self, index: int, slots: int, capacity: int) -> NDArray[Any]:
        layer = self._spec.layers[index // 2]
        # Not zeroed: pages that no token has reached cost no memory.
        return np.empty((slots, layer.kv_heads, capacity, layer.head_dim), self._spec.dtype)
