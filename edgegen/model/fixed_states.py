"""FixedStates: states of a fixed size, which every run overwrites, and the positions that a slot can go back to.

A run is a transaction: the states before it are copied first, so that a run that failed, was interrupted or had
rejected tokens can be undone. Farther back are checkpoints: copies of the states at chosen positions.
"""

from collections.abc import Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.layer_state import FixedState
from edgegen.model.ort_session import Buffer

Arrays = tuple[NDArray[np.float32], ...]

CHECKPOINTS = 8
"""Most of one slot."""

_VOID = -1
"""The position of a state that a run has left half written, or that is not there."""


class FixedStates:
    """The states of every slot; ``specs``: those of all layers.

    They are read at length 0 too, so an empty slot's are zero.
    """

    def __init__(self, specs: tuple[FixedState, ...]) -> None:
        self._specs = specs
        self._live = self._new(0)
        self._before = self._new(0)
        self._at: list[int] = []
        self._before_at: list[int] = []
        self._kept: list[dict[int, Arrays]] = []

    @property
    def nbytes(self) -> int:
        """Bytes of all slots, checkpoints included."""
        kept = {id(array): array.nbytes for slot in self._kept for arrays in slot.values() for array in arrays}
        return 2 * sum(array.nbytes for array in self._live) + sum(kept.values())

    @property
    def bytes_per_slot(self) -> int:
        """The most that one slot takes: its states twice, and its checkpoints."""
        return (2 + CHECKPOINTS) * sum(spec.nbytes for spec in self._specs)

    def resize(self, slots: int) -> None:
        """Have so many slots; those that go are empty."""
        if not self._specs or slots == len(self._at):
            return
        kept, live, before = min(slots, len(self._at)), self._new(slots), self._new(slots)
        for new, old in zip((*live, *before), (*self._live, *self._before), strict=True):
            new[:kept] = old[:kept]
        added = slots - kept
        self._live, self._before = live, before
        self._at = [*self._at[:kept], *[0] * added]
        self._before_at = [*self._before_at[:kept], *[_VOID] * added]
        self._kept = [*self._kept[:kept], *({} for _ in range(added))]

    def buffers(self, first: int, count: int) -> list[Buffer]:
        """The states of ``count`` slots from ``first``, as bindable views."""
        return [Buffer(array[first : first + count]) for array in self._live]

    def begin(self, first: int, rows: int) -> int:
        """A run is about to overwrite the states of ``rows`` slots; returns the bytes copied.

        Until :meth:`end`, they can only go back.
        """
        if not self._specs:
            return 0
        last = first + rows
        for slot in range(first, last):
            self._before_at[slot] = _VOID
        for live, before in zip(self._live, self._before, strict=True):
            before[first:last] = live[first:last]
        self._before_at[first:last] = self._at[first:last]
        self._at[first:last] = [_VOID] * rows
        return sum(live[first:last].nbytes for live in self._live)

    def end(self, first: int, lengths: list[int]) -> None:
        """The run has ended well, and the slots from ``first`` have these lengths."""
        if self._specs:
            self._at[first : first + len(lengths)] = lengths

    def positions(self, slot: int) -> Iterator[int]:
        """The positions that ``slot`` can go back to besides 0, the latest first."""
        there = {self._at[slot], self._before_at[slot], *self._kept[slot]}
        return iter(sorted(there - {_VOID, 0}, reverse=True))

    def go_back(self, slot: int, length: int) -> None:
        """Let ``slot`` be at ``length``, one of its positions or 0."""
        if not self._specs:
            return
        if not length:
            self.clear(slot)
            return
        if self._at[slot] != length:
            in_bank = self._before_at[slot] == length
            source = tuple(array[slot] for array in self._before) if in_bank else self._kept[slot][length]
            self._write(slot, source, length)
        if self._before_at[slot] > length:
            self._before_at[slot] = _VOID
        self._kept[slot] = {at: arrays for at, arrays in self._kept[slot].items() if at <= length}

    def clear(self, slot: int) -> None:
        """Let ``slot`` be empty."""
        if self._specs:
            self._kept[slot], self._before_at[slot] = {}, _VOID
            if self._at[slot]:
                self._write(slot, tuple(np.zeros(spec.shape, np.float32) for spec in self._specs), 0)

    def checkpoint(self, slot: int) -> None:
        """Remember the states at the position ``slot`` is at. Of many, those stay that are dense near the end, and ever
        farther apart before."""
        if not self._specs or self._at[slot] <= 0 or self._at[slot] in self._kept[slot]:
            return
        kept = {**self._kept[slot], self._at[slot]: self._copy(slot)}
        if len(kept) > CHECKPOINTS:
            *places, last = sorted(kept)
            around = zip([0, *places], places, [*places[1:], last], strict=False)
            gaps = {place: (later - earlier) / (last - place) for earlier, place, later in around}
            del kept[min(gaps, key=lambda place: gaps[place])]
        self._kept[slot] = kept

    def fork(self, source: int, target: int) -> None:
        """Make slot ``target`` a copy of slot ``source``."""
        if self._specs:
            self._at[target] = self._before_at[target] = _VOID
            for array in (*self._live, *self._before):
                array[target] = array[source]
            self._at[target], self._before_at[target] = self._at[source], self._before_at[source]
            self._kept[target] = dict(self._kept[source])

    def swap(self, a: int, b: int) -> None:
        """Exchange two slots."""
        if self._specs:
            for array in (*self._live, *self._before):
                array[[a, b]] = array[[b, a]]
            for places in (self._at, self._before_at):
                places[a], places[b] = places[b], places[a]
            self._kept[a], self._kept[b] = self._kept[b], self._kept[a]

    def save(self, slot: int) -> dict[int, Arrays]:
        """Copies of the states at every position that the slot can go back to."""
        if not self._specs:
            return {}
        there = {self._at[slot]: self._copy(slot)} if self._at[slot] > 0 else {}
        return {**self._kept[slot], **there}

    def restore(self, slot: int, saved: Mapping[int, Arrays], length: int) -> None:
        """Let ``slot`` be at ``length``, one of the positions of ``saved``, with those before as checkpoints."""
        if self._specs:
            self.clear(slot)
            self._kept[slot] = {at: arrays for at, arrays in saved.items() if at <= length}
            self.go_back(slot, length)

    def _write(self, slot: int, source: Arrays, length: int) -> None:
        self._at[slot] = _VOID  # interrupted between, it is void
        for array, values in zip(self._live, source, strict=True):
            array[slot] = values
        self._at[slot] = length

    def _copy(self, slot: int) -> Arrays:
        return tuple(array[slot].copy() for array in self._live)

    def _new(self, slots: int) -> list[NDArray[np.float32]]:
        return [np.zeros((slots, *spec.shape), np.float32) for spec in self._specs]
