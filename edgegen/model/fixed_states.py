"""FixedStates: states of a fixed size, which every run overwrites, and the positions that a slot can be rolled back to.

A run is a transaction. One that fails or is interrupted leaves the states invalid, and the slot is rolled back to a
checkpoint: a copy of the states at a chosen position. A copy before every run would cost more: states may have
megabytes. The last tokens of a run that may be rejected are left out of the states where the graph has pending tokens
(:mod:`edgegen.graph.pending_tokens`): the slot can be rolled back to any of them, and nothing is copied. Before a
longer proposal, or without them, there is a copy to memory that the slot keeps for it (a mark), since new memory would
cost more than the copy.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.layer_state import FixedState
from edgegen.graph.pending_tokens import pending_bytes
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
        self.pending = 0
        self.states: Arrays = ()


class FixedStates:
    """The states of every slot; ``specs``: those of all layers; ``pending``: the shape of what each has of pending
    tokens, or none.

    They are read at length 0 too, so an empty slot's are zero. What moves states returns the bytes that it copied.

    Attributes:
        most_pending: how many tokens at the end of a run can be left out of the states.
    """

    def __init__(self, specs: tuple[FixedState, ...], pending: tuple[tuple[int, int], ...] = ()) -> None:
        self.most_pending = min((rows for rows, _ in pending), default=0)
        self._specs = specs
        self._shapes = pending
        self._slot_bytes = sum(spec.nbytes for spec in specs)
        self._most = most_checkpoints(self._slot_bytes)
        self._live = self._new(0)
        self._tokens = self._new_tokens(0)
        self._spans = np.zeros((0, 2), np.int32)
        self._at: list[int] = []
        self._pending: list[int] = []  # tokens before that position that are not part of the states yet
        self._kept: list[dict[int, _Checkpoint]] = []
        self._marks: list[_Mark] = []

    @property
    def nbytes(self) -> int:
        """Bytes of all slots, checkpoints included."""
        kept = {id(array): array.nbytes for slot in self._kept for one in slot.values() for array in one.states}
        marks = sum(array.nbytes for one in self._marks for array in one.states)
        return sum(array.nbytes for array in (*self._live, *self._tokens)) + sum(kept.values()) + marks

    @property
    def bytes_per_slot(self) -> int:
        """The most that one slot takes: its states, its checkpoints, a mark among them, and pending tokens, the mark's
        among them."""
        return (1 + self._most) * self._slot_bytes + sum(pending_bytes(spec.shape) for spec in self._specs)

    @property
    def largest(self) -> int:
        """Bytes of the largest array of one slot."""
        tokens = (4 * rows * width for rows, width in self._shapes)
        return max([*(spec.nbytes for spec in self._specs), *tokens], default=0)

    def resize(self, slots: int) -> int:
        """Change the number of slots to ``slots``; slots that go are empty."""
        if not self._specs or slots == len(self._at):
            return 0
        kept, live, tokens = min(slots, len(self._at)), self._new(slots), self._new_tokens(slots)
        for new, old in zip((*live, *tokens), (*self._live, *self._tokens), strict=True):
            new[:kept] = old[:kept]
        added = slots - kept
        self._live, self._tokens, self._spans = live, tokens, np.zeros((slots, 2), np.int32)
        self._at = [*self._at[:kept], *[0] * added]
        self._pending = [*self._pending[:kept], *[0] * added]
        self._kept = [*self._kept[:kept], *({} for _ in range(added))]
        self._marks = [*self._marks[:kept], *(_Mark() for _ in range(added))]
        return kept * self._slot_bytes

    def buffers(self, first: int, count: int) -> list[Buffer]:
        """The states of ``count`` slots from ``first``, as bindable views; then what they have of pending tokens, and
        the spans of the next run, if there are any."""
        arrays: list[NDArray[Any]] = [*self._live, *self._tokens]
        if self._tokens:
            arrays.append(self._spans)
        return [Buffer(array[first : first + count]) for array in arrays]

    def begin(self, first: int, count: int, tokens: int = 1, left: int = 0) -> None:
        """A run of ``tokens`` is about to overwrite the states of ``count`` slots: until :meth:`end`, these can only
        roll back. The last ``left`` tokens are pending then."""
        if self._specs:
            slots = slice(first, first + count)
            self._spans[slots, 0], self._spans[slots, 1] = self._pending[slots], tokens - left
            self._at[slots] = [_INVALID] * count

    def end(self, first: int, lengths: list[int], left: int = 0) -> None:
        """The run has ended well, and the slots from ``first`` have these lengths, the last ``left`` tokens pending."""
        if self._specs:
            slots = slice(first, first + len(lengths))
            self._at[slots], self._pending[slots] = lengths, [left] * len(lengths)

    def positions(self, slot: int) -> Iterator[int]:
        """The positions that ``slot`` can be rolled back to besides 0, the latest first."""
        there = {*self._ends(slot), self._marks[slot].at, *self._kept[slot]}
        return iter(sorted(there - {_INVALID, 0}, reverse=True))

    def _ends(self, slot: int) -> range:
        """The positions that nothing has to be moved for: that of the states, and those of pending tokens after it."""
        at = self._at[slot]
        return range(at - self._pending[slot], at + 1) if at >= 0 else range(0)

    def roll_back(self, slot: int, length: int) -> int:
        """Let ``slot`` be at ``length``, one of its positions or 0."""
        if not self._specs or not length:
            self.clear(slot)
            return 0
        mark, kept, ends = self._marks[slot], self._kept[slot], self._ends(slot)
        moves = length not in ends
        if not moves:
            self._pending[slot], self._at[slot] = length - ends[0], length
        elif length in kept:
            self._write(slot, kept[length].states, length)
        else:
            self._write(slot, mark.states, length, mark.pending)
        if mark.at > length:
            mark.at = _INVALID
        self._kept[slot] = {at: one for at, one in kept.items() if at <= length}
        return self._slot_bytes if moves else 0

    def clear(self, slot: int) -> None:
        """Let ``slot`` be empty."""
        if self._specs:
            self._kept[slot], self._marks[slot].at = {}, _INVALID
            if self._at[slot]:
                self._write(slot, tuple(np.zeros(spec.shape, np.float32) for spec in self._specs), 0)

    def checkpoint(self, slot: int, *, shared_prefix: bool = False) -> int:
        """Take a snapshot of the states, which are at the position ``slot`` is at, or before its pending tokens.

        Of many, those stay that are dense near the end, and ever farther apart before; those of a ``shared_prefix``
        stay longest: other texts are likely to share it.
        """
        if not self._specs or (at := self._at[slot] - self._pending[slot]) <= 0:
            return 0
        kept = self._kept[slot]
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

    def mark(self, slot: int, tokens: int) -> int:
        """Note the states at the position ``slot`` is at, in the place of those noted before, unless it can be rolled
        back to it after a run of ``tokens`` anyway, or to the first of these: that one is never rejected."""
        if not self._specs or self._at[slot] <= 0 or self._at[slot] in self._kept[slot]:
            return 0
        if tokens <= 1 + self.most_pending and self._tokens:
            return 0
        mark = self._marks[slot]
        mark.at = _INVALID  # until all are noted
        noted_arrays = (*self._live, *self._tokens)
        if not mark.states:
            self._kept[slot] = self._thinned(dict(self._kept[slot]), self._most - 1)
            mark.states = tuple(np.empty(array.shape[1:], np.float32) for array in noted_arrays)
        for noted, array in zip(mark.states, noted_arrays, strict=True):
            np.copyto(noted, array[slot])
        mark.at, mark.pending = self._at[slot], self._pending[slot]
        return self._slot_bytes

    def fork(self, source: int, target: int) -> int:
        """Make slot ``target`` a copy of slot ``source``; they share the checkpoints."""
        if self._specs:
            self._at[target] = _INVALID
            for array in (*self._live, *self._tokens):
                array[target] = array[source]
            self._at[target], self._pending[target] = self._at[source], self._pending[source]
            self._kept[target], self._marks[target].at = dict(self._kept[source]), _INVALID
        return self._slot_bytes

    def swap(self, a: int, b: int, spare: NDArray[np.uint8]) -> int:
        """Exchange two slots, by way of ``spare``, which has room for the largest array of one."""
        for array in (*self._live, *self._tokens):
            swap_rows(array[a], array[b], spare)
        if self._specs:
            self._pending[a], self._pending[b] = self._pending[b], self._pending[a]
            self._at[a], self._at[b] = self._at[b], self._at[a]
            self._kept[a], self._kept[b] = self._kept[b], self._kept[a]
            self._marks[a], self._marks[b] = self._marks[b], self._marks[a]
        return 2 * self._slot_bytes

    def save(self, slot: int) -> dict[int, Arrays]:
        """Copies of the states at every position that the slot can be rolled back to but pending tokens, a few that are
        run again."""
        if not self._specs:
            return {}
        at = self._at[slot] - self._pending[slot]
        there = {at: self._copy(slot)} if at > 0 else {}
        return {at: one.states for at, one in self._kept[slot].items()} | there

    def restore(self, slot: int, saved: Mapping[int, Arrays], length: int) -> int:
        """Let ``slot`` be at ``length``, one of the positions of ``saved``, with those before as checkpoints."""
        self.clear(slot)
        if self._specs:
            self._kept[slot] = {
                at: _Checkpoint(arrays, shared_prefix=False) for at, arrays in saved.items() if at <= length
            }
        return self.roll_back(slot, length)

    def _write(self, slot: int, source: Arrays, length: int, pending: int = 0) -> None:
        """Let the states, and what ``source`` has of ``pending`` tokens, be those of ``length``."""
        self._at[slot] = _INVALID  # until all are written: an interrupt may fall between
        for array, values in zip((*self._live, *self._tokens), source, strict=False):
            array[slot] = values
        self._at[slot], self._pending[slot] = length, pending

    def _copy(self, slot: int) -> Arrays:
        return copied(array[slot] for array in self._live)

    def _new(self, slots: int) -> list[NDArray[np.float32]]:
        return [np.zeros((slots, *spec.shape), np.float32) for spec in self._specs]

    def _new_tokens(self, slots: int) -> list[NDArray[np.float32]]:
        return [np.zeros((slots, *shape), np.float32) for shape in self._shapes]
