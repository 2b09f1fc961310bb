"""FixedStates: states of a fixed size, which every run overwrites, and the positions that a slot can be rolled back to.

A run is a transaction. One that fails or is interrupted leaves the states invalid, and the slot is rolled back to a
checkpoint: a copy of the states at a chosen position. A copy before every run would cost more: states may have
megabytes. Before a proposal, which may be rejected, there is one to memory that the slot keeps for it (a mark), since
new memory would cost more than the copy.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.layer_state import FixedState
from edgegen.model.kv_snapshot import copied, swap_rows
from edgegen.model.ort_session import Buffer
from edgegen.model.state_checkpoints import most_checkpoints

Arrays = tuple[NDArray[np.float32], ...]

_INVALID = -1
"""The position of a state that a run has left half written, or that is not there."""


class _Checkpoint(NamedTuple):
    states: Arrays
    shared_prefix: bool


class _Mark:
    """States that a slot may go back to once, in memory of its own."""

    def __init__(self) -> None:
        self.at = _INVALID
        self.states: Arrays = ()


class FixedStates:
    """The states of every slot; ``specs``: those of all layers.

    They are read at length 0 too, so an empty slot's are zero. What moves states returns the bytes that it copied.
    """

    def __init__(self, specs: tuple[FixedState, ...]) -> None:
        self._specs = specs
        self._slot_bytes = sum(spec.nbytes for spec in specs)
        self._most = most_checkpoints(self._slot_bytes)
        self._live = self._new(0)
        self._at: list[int] = []
        self._kept: list[dict[int, _Checkpoint]] = []
        self._marks: list[_Mark] = []

    @property
    def nbytes(self) -> int:
        """Bytes of all slots, checkpoints included."""
        kept = {id(array): array.nbytes for slot in self._kept for one in slot.values() for array in one.states}
        marks = sum(array.nbytes for one in self._marks for array in one.states)
        return sum(array.nbytes for array in self._live) + sum(kept.values()) + marks

    @property
    def bytes_per_slot(self) -> int:
        """The most that one slot takes: its states, and its checkpoints, a mark among them."""
        return (1 + self._most) * self._slot_bytes

    def resize(self, slots: int) -> int:
        """Have so many slots; those that go are empty."""
        if not self._specs or slots == len(self._at):
            return 0
        kept, live = min(slots, len(self._at)), self._new(slots)
        for new, old in zip(live, self._live, strict=True):
            new[:kept] = old[:kept]
        added = slots - kept
        self._live = live
        self._at = [*self._at[:kept], *[0] * added]
        self._kept = [*self._kept[:kept], *({} for _ in range(added))]
        self._marks = [*self._marks[:kept], *(_Mark() for _ in range(added))]
        return kept * self._slot_bytes

    def buffers(self, first: int, count: int) -> list[Buffer]:
        """The states of ``count`` slots from ``first``, as bindable views."""
        return [Buffer(array[first : first + count]) for array in self._live]

    def begin(self, first: int, count: int) -> None:
        """A run is about to overwrite the states of ``count`` slots: until :meth:`end`, these can only roll back."""
        if self._specs:
            self._at[first : first + count] = [_INVALID] * count

    def end(self, first: int, lengths: list[int]) -> None:
        """The run has ended well, and the slots from ``first`` have these lengths."""
        if self._specs:
            self._at[first : first + len(lengths)] = lengths

    def positions(self, slot: int) -> Iterator[int]:
        """The positions that ``slot`` can be rolled back to besides 0, the latest first."""
        there = {self._at[slot], self._marks[slot].at, *self._kept[slot]}
        return iter(sorted(there - {_INVALID, 0}, reverse=True))

    def roll_back(self, slot: int, length: int) -> int:
        """Let ``slot`` be at ``length``, one of its positions or 0."""
        if not self._specs or not length:
            self.clear(slot)
            return 0
        moves = self._at[slot] != length
        if moves:
            mark, kept = self._marks[slot], self._kept[slot]
            self._write(slot, kept[length].states if length in kept else mark.states, length)
        if self._marks[slot].at > length:
            self._marks[slot].at = _INVALID
        self._kept[slot] = {at: one for at, one in self._kept[slot].items() if at <= length}
        return self._slot_bytes if moves else 0

    def clear(self, slot: int) -> None:
        """Let ``slot`` be empty."""
        if self._specs:
            self._kept[slot], self._marks[slot].at = {}, _INVALID
            if self._at[slot]:
                self._write(slot, tuple(np.zeros(spec.shape, np.float32) for spec in self._specs), 0)

    def checkpoint(self, slot: int, *, shared_prefix: bool = False) -> int:
        """Take a snapshot of the states at the position ``slot`` is at.

        Of many, those stay that are dense near the end, and ever farther apart before; those of a ``shared_prefix``
        stay longest: other texts are likely to share it.
        """
        if not self._specs or self._at[slot] <= 0:
            return 0
        kept, at = self._kept[slot], self._at[slot]
        known = kept.get(at)
        if known is None:
            new = _Checkpoint(self._copy(slot), shared_prefix)
        else:
            new = _Checkpoint(known.states, shared_prefix or known.shared_prefix)
        self._kept[slot] = self._thinned({**kept, at: new}, self._most - bool(self._marks[slot].states))
        return 0 if known else self._slot_bytes

    def _thinned(self, kept: dict[int, _Checkpoint], most: int) -> dict[int, _Checkpoint]:
        """``kept`` without the one that is missed least, where they are more than ``most``."""
        if len(kept) > most:
            *places, last = sorted(kept)
            around = zip([0, *places], places, [*places[1:], last], strict=False)
            gaps = {place: (later - earlier) / (last - place) for earlier, place, later in around}
            del kept[min(gaps, key=lambda place: (kept[place].shared_prefix, gaps[place]))]
        return kept

    def mark(self, slot: int) -> int:
        """Note the states at the position ``slot`` is at, in the place of those noted before."""
        if not self._specs or self._at[slot] <= 0 or self._at[slot] in self._kept[slot]:
            return 0
        mark = self._marks[slot]
        mark.at = _INVALID  # until all are noted
        if not mark.states:
            self._kept[slot] = self._thinned(dict(self._kept[slot]), self._most - 1)
            mark.states = tuple(np.empty(spec.shape, np.float32) for spec in self._specs)
        for noted, array in zip(mark.states, self._live, strict=True):
            np.copyto(noted, array[slot])
        mark.at = self._at[slot]
        return self._slot_bytes

    def fork(self, source: int, target: int) -> int:
        """Make slot ``target`` a copy of slot ``source``; they share the checkpoints."""
        if self._specs:
            self._at[target] = _INVALID
            for array in self._live:
                array[target] = array[source]
            self._at[target] = self._at[source]
            self._kept[target], self._marks[target].at = dict(self._kept[source]), _INVALID
        return self._slot_bytes

    def swap(self, a: int, b: int, spare: NDArray[np.uint8]) -> int:
        """Exchange two slots, by way of ``spare``, which has room for the largest state of a row."""
        for array in self._live:
            swap_rows(array[a], array[b], spare)
        if self._specs:
            self._at[a], self._at[b] = self._at[b], self._at[a]
            self._kept[a], self._kept[b] = self._kept[b], self._kept[a]
            self._marks[a], self._marks[b] = self._marks[b], self._marks[a]
        return 2 * self._slot_bytes

    def save(self, slot: int) -> dict[int, Arrays]:
        """Copies of the states at every position that the slot can be rolled back to."""
        if not self._specs:
            return {}
        there = {self._at[slot]: self._copy(slot)} if self._at[slot] > 0 else {}
        return {at: one.states for at, one in self._kept[slot].items()} | there

    def restore(self, slot: int, saved: Mapping[int, Arrays], length: int) -> int:
        """Let ``slot`` be at ``length``, one of the positions of ``saved``, with those before as checkpoints."""
        self.clear(slot)
        if self._specs:
            self._kept[slot] = {
                at: _Checkpoint(arrays, shared_prefix=False) for at, arrays in saved.items() if at <= length
            }
        return self.roll_back(slot, length)

    def _write(self, slot: int, source: Arrays, length: int) -> None:
        self._at[slot] = _INVALID  # until all are written: an interrupt may fall between
        for array, values in zip(self._live, source, strict=True):
            array[slot] = values
        self._at[slot] = length

    def _copy(self, slot: int) -> Arrays:
        return copied(array[slot] for array in self._live)

    def _new(self, slots: int) -> list[NDArray[np.float32]]:
        return [np.zeros((slots, *spec.shape), np.float32) for spec in self._specs]
