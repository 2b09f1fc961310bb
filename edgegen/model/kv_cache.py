"""KVCache: a KV cache of contiguous slots that grows as needed, and that graphs read and append to in place.

Each layer keeps two arrays [slots, kv_heads, capacity, row width], or one where values are the keys. Each sequence of
a batch has a slot; the running ones are the first, so that a decode step over n sequences reads a view of the first n
slots. Positions beyond a slot's length are never read. Layers with sliding-window attention keep little more than the
window: their slots start at a base of their own, and when a slot is full, what the window has passed is dropped and the
rest moves to the front. Fixed states are kept beside them (:class:`FixedStates`).
Memory is moved only by the named operations ``grow``, ``slide``, ``fork``, ``swap``, ``compact``, ``save`` and
``restore``, and that of fixed states by ``checkpoint`` and ``truncate`` too. They count what they copy.
"""

import math
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.manifest import KVLayer, KVSpec
from edgegen.errors import UsageError
from edgegen.model.cache import Cache
from edgegen.model.fixed_states import FixedStates
from edgegen.model.kv_snapshot import KVSnapshot, copied, swap_rows
from edgegen.model.ort_session import Buffer
from edgegen.model.sliding_window import CHUNK, SlidingWindow
from edgegen.system import fresh_memory

STEP = 64
"""Capacity is a multiple of this many positions."""

_NONE: Mapping[str, SlidingWindow] = MappingProxyType({})


class KVCache(Cache):
    """The cache of one runner.

    Attributes:
        lengths: int32 [slots], the positions of each slot so far.
        bases: for each cache class, int32 [slots]: the position that stands first in the slot's arrays.
        copied_bytes: bytes moved so far by the named operations.
        version: changes whenever the arrays do; a caller that bound views of them binds again.
        capacity: positions that a slot may have before the cache grows; the rotary tables are as long.

    ``before_growth`` is called to drop such views; otherwise the old arrays would stay alive. ``windows``: those of the
    cache classes with sliding-window attention. ``budget``: bytes that growth stays within, unless more is asked for.
    ``pending``: as of :class:`FixedStates`.
    """

    def __init__(
        self,
        spec: KVSpec,
        max_context: int,
        before_growth: Callable[[], None] = lambda: None,
        windows: Mapping[str, SlidingWindow] = _NONE,
        budget: int | None = None,
        pending: tuple[tuple[int, int], ...] = (),
    ) -> None:
        self._spec = spec
        self._budget = budget
        self._max_context = max_context
        self._before_growth = before_growth
        self._windows = windows
        self._classes = [layer.cache_class for layer in spec.arrays]  # of each array
        self._arrays: list[NDArray[Any]] = [self._empty(layer, 0, 0) for layer in spec.arrays]
        self._fixed = FixedStates(spec.fixed, pending)
        self.capacity = 0
        self._chunk: int = CHUNK if windows else max_context  # without windows, one run may be as long as any
        self._views: dict[tuple[int, int], list[Buffer]] = {}
        self.lengths = np.zeros(0, np.int32)
        self.bases = {name: np.zeros(0, np.int32) for name in spec.classes}
        self.copied_bytes = 0
        self.version = 0

    @property
    def nbytes(self) -> int:
        """Bytes reserved for the KV cache."""
        return self._fixed.nbytes + sum(array.nbytes for array in self._arrays)

    def reserve(self, slots: int, length: int, tokens: int = 0) -> None:
        """Make room for ``length`` positions in each of ``slots`` slots, and for ``tokens`` in one run; may grow.

        1. There is room: nothing happens.
        2. The budget allows more: ``slots`` at least, and half more positions, so that the copies of a long generation
           stay a constant share of its work; never positions beyond the context.
        3. The budget does not: room to spare goes first, empty slots at the end, then capacity, down to what the
           longest slot holds.
        4. Even that is beyond the budget: what was asked for is granted. Admission has counted it, and a run cannot do
           with less.
        """
        if slots <= self.slots and length <= self.capacity and tokens <= self._chunk:
            return
        chunk = max(_rounded(tokens), self._chunk)
        slots, least, capacity = max(slots, self.slots), slots, self.capacity
        if length > capacity:
            wanted = _rounded(max(length, capacity * 3 // 2))
            capacity = max(length, min(wanted, self._max_context))  # nothing to spare beyond the context
        if self._budget is not None and self.bytes_for(slots, capacity, chunk) > self._budget:
            slots = max([least, *(slot + 1 for slot, held in enumerate(self.lengths.tolist()) if held)])
            length = max(length, int(self.lengths.max(initial=0)))
            sizes = range(length, capacity + 1)
            fitting = bisect_right(sizes, self._budget, key=lambda size: self.bytes_for(slots, size, chunk))
            capacity = sizes[max(0, fitting - 1)]
        self.grow(slots, capacity, chunk)

    def bytes_for(self, slots: int, length: int, tokens: int = 0) -> int:
        """Bytes of ``slots`` slots with room for ``length`` positions."""
        chunk = max(tokens, self._chunk)
        layers = self._spec.layers
        per_slot = sum(self._spec.layer_bytes(layer) * self._room(layer.cache_class, length, chunk) for layer in layers)
        return slots * (per_slot + self._fixed.bytes_per_slot)

    def make_room(self, first: int, rows: int, tokens: int) -> None:
        """Make room for ``tokens`` more positions in ``rows`` slots from ``first``: grows, and slides, if need be."""
        last = first + rows
        longest = max(self.lengths[first:last].tolist(), default=0)  # for few rows, faster than NumPy
        self.reserve(last, longest + tokens, tokens)
        for name, window in self._windows.items():
            held = self.lengths[first:last] - self.bases[name][first:last]
            room = self._room(name, self.capacity, self._chunk)
            if int(held.max()) + tokens > room:
                for slot in first + np.flatnonzero(held + tokens > room):
                    self.slide(name, int(slot), window)

    def grow(self, slots: int, capacity: int, chunk: int = 0) -> None:
        """Move to arrays of another size, layer by layer: the valid positions of every slot are copied.

        There may be fewer slots, if those that go are empty, and less room, if no slot needs more.

        ``chunk``: how many tokens at once the windows are to have room for, if that is more than so far.
        """
        chunk = max(chunk, self._chunk)
        held = {name: int((self.lengths - bases).max(initial=0)) for name, bases in self.bases.items()}
        self._views.clear()
        self._before_growth()
        self.version += 1  # first, and size last: an interrupted growth starts again
        for i, (old, layer) in enumerate(zip(self._arrays, self._spec.arrays, strict=True)):
            name = layer.cache_class
            new = self._empty(layer, slots, self._room(name, capacity, chunk))
            if new.shape == old.shape:
                continue
            valid = old[:slots, :, : held[name]]
            new[: self.slots, :, : held[name]] = valid
            self.copied_bytes += valid.nbytes
            self._arrays[i] = new
        self.copied_bytes += self._fixed.resize(slots)
        self.capacity, self._chunk = capacity, chunk
        added = np.zeros(max(0, slots - self.slots), np.int32)
        self.bases = {name: np.concatenate([bases[:slots], added]) for name, bases in self.bases.items()}
        self.lengths = np.concatenate([self.lengths[:slots], added])

    def slide(self, name: str, slot: int, window: SlidingWindow) -> None:
        """Drop what the window has passed, and move the rest of the slot to its front, in layers of the class ``name``.

        Interrupted in the midst of it, the slot is empty.
        """
        length, base = int(self.lengths[slot]), int(self.bases[name][slot])
        passed = window.base(length) - base
        try:
            for array in self._arrays_of(name):
                kept = array[slot, :, passed : length - base]
                array[slot, :, : kept.shape[1]] = kept
                self.copied_bytes += kept.nbytes
            self.bases[name][slot] += passed
        except BaseException:
            self._clear(slot)
            raise

    def fork(self, source: int, target: int) -> None:
        length = int(self.lengths[source])
        for name, bases in self.bases.items():
            held = length - int(bases[source])
            for array in self._arrays_of(name):
                array[target, :, :held] = array[source, :, :held]
                self.copied_bytes += array[source, :, :held].nbytes
            bases[target] = bases[source]
        self.copied_bytes += self._fixed.fork(source, target)
        self.lengths[target] = length

    def swap(self, a: int, b: int) -> None:
        held = {
            name: int(max(self.lengths[a] - bases[a], self.lengths[b] - bases[b])) for name, bases in self.bases.items()
        }
        sizes = [array[a, :, : held[name]].nbytes for array, name in zip(self._arrays, self._classes, strict=True)]
        most = max([*sizes, self._fixed.largest])
        spare = np.empty(most, np.uint8)  # first, so that nothing can fail between
        for array, name in zip(self._arrays, self._classes, strict=True):
            swap_rows(array[a, :, : held[name]], array[b, :, : held[name]], spare)
        self.copied_bytes += 2 * sum(sizes) + self._fixed.swap(a, b, spare)
        for numbers in (self.lengths, *self.bases.values()):
            numbers[a], numbers[b] = int(numbers[b]), int(numbers[a])

    def save(self, slot: int) -> KVSnapshot:
        """A copy of ``slot``."""
        length = int(self.lengths[slot])
        bases = {name: int(bases[slot]) for name, bases in self.bases.items()}
        held = zip(self._arrays, self._classes, strict=True)
        arrays = copied(array[slot, :, : length - bases[name]] for array, name in held)
        snapshot = KVSnapshot(length, bases, arrays, self._fixed.save(slot))
        self.copied_bytes += sum(array.nbytes for array in arrays) + self._spec.bytes_per_row
        return snapshot

    def restore(self, slot: int, snapshot: KVSnapshot, length: int) -> None:
        """Fill ``slot`` with the first ``length`` positions of ``snapshot``, which is of a cache like this."""
        held = {name: max(0, length - base) for name, base in snapshot.bases.items()}
        chunk = max((window.tokens_beside(held[name]) for name, window in self._windows.items()), default=0)
        self.reserve(slot + 1, length, chunk)
        self._clear(slot)
        for array, name, saved in zip(self._arrays, self._classes, snapshot.arrays, strict=True):
            array[slot, :, : held[name]] = saved[:, : held[name]]
            self.copied_bytes += array[slot, :, : held[name]].nbytes
        for name, bases in self.bases.items():
            bases[slot] = snapshot.bases[name]
        self.copied_bytes += self._fixed.restore(slot, snapshot.states, length)
        self.lengths[slot] = length

    def truncatable_length(self, slot: int, length: int) -> int:
        """The longest length, ``length`` or less, that ``slot`` can be truncated to.

        Attention must find every position there that it reads: a window keeps few before it. And the fixed states must
        be known there: they are at the end, and at checkpoints.
        """
        if not length:
            return 0
        bases = {name: int(bases[slot]) for name, bases in self.bases.items()}
        return self._longest_prefix(bases, self._fixed.positions(slot) if self._spec.fixed else (), length)

    def restorable_length(self, snapshot: KVSnapshot, length: int) -> int:
        return self._longest_prefix(snapshot.bases, sorted(snapshot.states, reverse=True), length)

    def checkpoint(self, slot: int, *, shared_prefix: bool = False) -> None:
        """Take a snapshot of the fixed states of ``slot``, so that it can be rolled back to here."""
        self.copied_bytes += self._fixed.checkpoint(slot, shared_prefix=shared_prefix)

    def mark(self, slot: int, tokens: int) -> None:
        self.copied_bytes += self._fixed.mark(slot, tokens)

    @contextmanager
    def running(self, first: int, rows: int, tokens: int, *, rejectable: bool = False) -> Generator[None]:
        """A run that appends ``tokens`` to each of ``rows`` slots: its end counts them, its failure leaves nothing.

        ``rejectable``: whether all but the first may be rejected, so that slots can be rolled back to them.
        """
        left = min(tokens - 1, self._fixed.most_pending) if rejectable else 0
        self._fixed.begin(first, rows, tokens, left)
        yield
        held = [length + tokens for length in self.lengths[first : first + rows].tolist()]
        for slot, length in enumerate(held, first):
            self.lengths[slot] = length
        self._fixed.end(first, held, left)

    def truncate(self, slot: int, length: int) -> None:
        """Forget the positions of ``slot`` from ``length`` on; only fixed states are moved.

        Raises:
            UsageError: positions in the window before ``length`` are no longer kept, or the fixed states there
                (:meth:`truncatable_length`). Truncating to 0 always works, and without fixed states so does forgetting
                the last ``edgegen.model.sliding_window.BEHIND``.
        """
        if not length:
            self._clear(slot)
        length = min(length, int(self.lengths[slot]))
        if length == self.lengths[slot] and not self._spec.fixed:
            return
        if (possible := self.truncatable_length(slot, length)) != length:
            raise UsageError(
                f"slot {slot} of the cache cannot be truncated to {length} of its {self.lengths[slot]} positions: "
                f"layers with a window or a fixed state no longer keep what is needed there; truncate to {possible}."
            )
        self.copied_bytes += self._fixed.roll_back(slot, length)
        self.lengths[slot] = length

    def buffers(self, first: int, count: int) -> list[Buffer]:
        """Key and value of every layer (k0, v0, k1, …; a latent once), then the fixed states, as bindable views of
        ``count`` slots from ``first``."""
        key = (first, count)
        if key not in self._views:
            views = [Buffer(array[first : first + count]) for array in self._arrays]
            self._views[key] = views + self._fixed.buffers(first, count)
        return self._views[key]

    def _longest_prefix(self, bases: Mapping[str, int], places: Iterable[int], length: int) -> int:
        """The longest length with all that attention needs; ``places``: where the fixed states are known, the latest
        first."""
        fitting = (place for place in places if place <= length) if self._spec.fixed else (length,)
        windows = self._windows.items()
        return next(
            (
                place
                for place in fitting
                if all(bases[name] <= max(0, place - window.size + 1) for name, window in windows)
            ),
            0,
        )

    def _arrays_of(self, name: str) -> Iterator[NDArray[Any]]:
        return (array for array, own in zip(self._arrays, self._classes, strict=True) if own == name)

    def _clear(self, slot: int) -> None:
        self.lengths[slot] = 0
        self._fixed.clear(slot)
        for bases in self.bases.values():
            bases[slot] = 0

    def _room(self, name: str, capacity: int, chunk: int) -> int:
        """Positions in the arrays of a class."""
        return min(capacity, self._windows[name].room(chunk)) if name in self._windows else capacity

    def _empty(self, layer: KVLayer, slots: int, capacity: int) -> NDArray[Any]:
        shape = (slots, layer.kv_heads, capacity, self._spec.format.row_width(layer.head_dim))
        dtype = np.dtype(self._spec.format.array_dtype)
        size = math.prod(shape) * dtype.itemsize
        # Untouched pages cost no memory, and outgrown arrays are given back.
        return np.frombuffer(fresh_memory(size), dtype).reshape(shape) if size else np.empty(shape, dtype)


def _rounded(positions: int) -> int:
    """Up to a multiple of ``STEP``."""
    return -(-positions // STEP) * STEP
