"""One suite for every kind of KV cache: each operation against the simplest model of a slot, a list of numbers."""

from typing import Generic, TypeVar

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edgegen.model.cache import Cache
from edgegen.model.concat_cache import ConcatCache
from edgegen.model.kv_cache import STEP, KVCache
from edgegen.model.kv_snapshot import KVSnapshot
from edgegen.model.sliding_window import BEHIND, CHUNK
from tests.runtime.model.caches import (
    CONCAT_SPEC,
    POSITION_BYTES,
    SPEC,
    WINDOW,
    append,
    arrays,
    kept,
    put,
    read,
    read_concat,
    returned,
    windowed_cache,
)

C = TypeVar("C", bound=Cache)

SETTINGS = settings(max_examples=40, stateful_step_count=25, deadline=None)


class CacheMachine(RuleBasedStateMachine, Generic[C]):
    """The live slots are the first ones. A subclass makes the cache and appends and reads as its graphs would."""

    MOST_ROWS = 4
    MOST_ADMITTED = 90
    MOST_APPENDED = 40
    MAX_CONTEXT = 300

    cache: C

    def make(self) -> C:
        raise NotImplementedError

    def append(self, slot: int, values: list[float]) -> None:
        raise NotImplementedError

    def check(self, slot: int, row: list[float]) -> None:
        """Whether ``slot`` holds ``row``."""
        raise NotImplementedError

    def make_room(self, slots: int, length: int) -> None:
        self.cache.reserve(slots, length)

    def moved(self, positions: int) -> None:
        """Told how many positions an operation moves in a cache whose slots share nothing."""

    def fewest(self, length: int) -> int:
        """To how few positions a slot of ``length`` may be cut short."""
        return 0

    @initialize()
    def begin(self) -> None:
        self.cache = self.make()
        self.rows: list[list[float]] = []
        self.saved: list[tuple[KVSnapshot, list[float]]] = []
        self.next = 0.0

    @rule(data=st.data())
    @precondition(lambda self: len(self.rows) < self.MOST_ROWS)
    def admit(self, data: st.DataObject) -> None:
        count = data.draw(st.integers(1, self.MOST_ADMITTED))
        self.make_room(len(self.rows) + 1, count)
        self.cache.truncate(len(self.rows), 0)
        self.rows.append([])
        self.extend(len(self.rows) - 1, count)

    @rule(data=st.data())
    @precondition(lambda self: self.rows)
    def grow_row(self, data: st.DataObject) -> None:
        slot = self.any_slot(data)
        count = min(data.draw(st.integers(1, self.MOST_APPENDED)), self.MAX_CONTEXT - len(self.rows[slot]))
        self.make_room(len(self.rows), len(self.rows[slot]) + count)
        self.extend(slot, count)

    @rule(data=st.data())
    @precondition(lambda self: self.rows)
    def truncate(self, data: st.DataObject) -> None:
        """Never lengthens; where a window has passed the length, it is refused."""
        slot = self.any_slot(data)
        held = len(self.rows[slot])
        length = data.draw(st.integers(self.fewest(held), 2 * held))
        if self.cache.truncatable_length(slot, length) == length:
            self.cache.truncate(slot, length)
            self.rows[slot] = self.rows[slot][:length]

    @rule(data=st.data())
    @precondition(lambda self: 0 < len(self.rows) < self.MOST_ROWS)
    def fork(self, data: st.DataObject) -> None:
        source = self.any_slot(data)
        self.make_room(len(self.rows) + 1, 1)
        self.cache.fork(source, len(self.rows))
        self.rows.append(list(self.rows[source]))
        self.moved(len(self.rows[source]))

    @rule(data=st.data())
    @precondition(lambda self: self.rows)
    def leave(self, data: st.DataObject) -> None:
        slot = self.any_slot(data)
        moved = self.cache.compact(slot, len(self.rows))
        assert moved == len(self.rows) - 1
        last = self.rows.pop()
        if slot != moved:
            self.rows[slot] = last
            self.moved(len(last))
        assert self.cache.lengths[moved] == 0

    @rule(data=st.data())
    @precondition(lambda self: len(self.rows) > 1)
    def swap(self, data: st.DataObject) -> None:
        a, b = data.draw(st.permutations(range(len(self.rows))))[:2]
        self.cache.swap(a, b)
        self.rows[a], self.rows[b] = self.rows[b], self.rows[a]
        self.moved(2 * max(len(self.rows[a]), len(self.rows[b])))

    @rule(data=st.data())
    @precondition(lambda self: self.rows)
    def save(self, data: st.DataObject) -> None:
        slot = self.any_slot(data)
        snapshot = self.cache.save(slot)
        assert snapshot.length == len(self.rows[slot])
        self.saved.append((snapshot, list(self.rows[slot])))
        self.moved(len(self.rows[slot]))

    @rule(data=st.data())
    @precondition(lambda self: self.saved and len(self.rows) < self.MOST_ROWS)
    def restore(self, data: st.DataObject) -> None:
        """A snapshot stays as it was, whatever has happened to its slot since."""
        snapshot, values = data.draw(st.sampled_from(self.saved))
        length = data.draw(st.integers(self.fewest(len(values)), len(values)))
        assert self.cache.restorable_length(snapshot, len(values)) == len(values)
        if self.cache.restorable_length(snapshot, length) != length:
            length = len(values)
        self.make_room(len(self.rows) + 1, length)
        self.cache.restore(len(self.rows), snapshot, length)
        self.rows.append(values[:length])
        self.moved(length)

    @rule()
    def slots_are_what_was_written(self) -> None:
        """A rule and no invariant: some caches put work off until they are read."""
        for slot, row in enumerate(self.rows):
            self.check(slot, row)

    @invariant()
    def lengths_are_known_without_reading(self) -> None:
        assert self.cache.lengths[: len(self.rows)].tolist() == [len(row) for row in self.rows]

    def any_slot(self, data: st.DataObject) -> int:
        return data.draw(st.integers(0, len(self.rows) - 1))

    def extend(self, slot: int, count: int) -> None:
        values = [self.next + i for i in range(count)]
        self.next += count
        self.append(slot, values)
        self.rows[slot] += values


class InPlaceMachine(CacheMachine[KVCache]):
    """Its copies and its memory are exactly what the operations say."""

    copied = 0

    def make(self) -> KVCache:
        return KVCache(SPEC, self.MAX_CONTEXT)

    def append(self, slot: int, values: list[float]) -> None:
        append(self.cache, slot, values)

    def check(self, slot: int, row: list[float]) -> None:
        assert read(self.cache, slot) == row

    def moved(self, positions: int) -> None:
        self.copied += positions * POSITION_BYTES

    def make_room(self, slots: int, length: int) -> None:
        version, capacity, longest = self.cache.version, self.cache.capacity, int(self.cache.lengths.max(initial=0))
        grows = slots > self.cache.slots or length > capacity
        if grows:
            self.moved(self.cache.slots * longest)
        self.cache.reserve(slots, length)
        assert (self.cache.version != version) == grows
        assert self.cache.slots >= slots
        assert self.cache.capacity >= max(length, capacity)

    @invariant()
    def each_step_leaves_the_slots_right(self) -> None:
        self.slots_are_what_was_written()

    @invariant()
    def copies_are_counted(self) -> None:
        assert self.cache.copied_bytes == self.copied

    @invariant()
    def memory_is_what_is_reserved(self) -> None:
        assert self.cache.nbytes == self.cache.slots * self.cache.capacity * POSITION_BYTES
        assert self.cache.capacity <= self.MAX_CONTEXT
        assert self.cache.capacity % STEP == 0 or self.cache.capacity == self.MAX_CONTEXT
        assert all(snapshot.nbytes == len(values) * POSITION_BYTES for snapshot, values in self.saved)


class WindowedMachine(CacheMachine[KVCache]):
    """Sequences far longer than the window of one of the two layers."""

    MOST_ROWS = 3
    MOST_ADMITTED = 300
    MOST_APPENDED = 130
    MAX_CONTEXT = 100_000

    longest_run = CHUNK

    def make(self) -> KVCache:
        return windowed_cache(self.MAX_CONTEXT)

    def append(self, slot: int, values: list[float]) -> None:
        put(self.cache, slot, values)
        self.longest_run = max(self.longest_run, -(-len(values) // STEP) * STEP)

    def check(self, slot: int, row: list[float]) -> None:
        base = int(self.cache.bases["near"][slot])
        assert base % WINDOW.step == 0
        assert base <= max(0, len(row) - WINDOW.size + 1)
        assert kept(self.cache, "near", slot) == row[base:]
        assert kept(self.cache, "far", slot) == row

    def fewest(self, length: int) -> int:
        return max(0, length - 2 * BEHIND)

    @invariant()
    def each_step_leaves_the_slots_right(self) -> None:
        self.slots_are_what_was_written()

    @invariant()
    def the_last_positions_can_be_gone_back_over(self) -> None:
        """As far as the window still has all that the next query sees, and at least a proposal's length."""
        for slot, row in enumerate(self.rows):
            base = int(self.cache.bases["near"][slot])
            for length in range(max(1, len(row) - 2 * BEHIND), len(row) + 1):
                assert (self.cache.truncatable_length(slot, length) == length) == (
                    base <= max(0, length - WINDOW.size + 1)
                )
        for snapshot, values in self.saved:
            base = snapshot.bases["near"]
            for length in range(max(1, len(values) - 2 * BEHIND), len(values) + 1):
                assert (self.cache.restorable_length(snapshot, length) == length) == (
                    base <= max(0, length - WINDOW.size + 1)
                )

    @invariant()
    def memory_of_the_window_is_bounded(self) -> None:
        near, _, far, _ = arrays(self.cache)
        assert near.shape[2] == min(self.cache.capacity, WINDOW.room(self.longest_run))
        assert far.shape[2] == self.cache.capacity


class ConcatMachine(CacheMachine[ConcatCache]):
    """Slots share what they can: forking, swapping and leaving copy nothing."""

    MOST_ADMITTED = 9
    MOST_APPENDED = 5
    MAX_CONTEXT = 1000

    def make(self) -> ConcatCache:
        return ConcatCache(CONCAT_SPEC)

    def append(self, slot: int, values: list[float]) -> None:
        self.cache.replace(slot, returned([*read_concat(self.cache, slot), *values]))

    def check(self, slot: int, row: list[float]) -> None:
        assert read_concat(self.cache, slot) == row

    @rule(data=st.data())
    @precondition(lambda self: 1 < len(self.rows) < self.MOST_ROWS)
    def forking_and_swapping_copy_nothing(self, data: st.DataObject) -> None:
        copied = self.cache.copied_bytes
        self.fork(data)
        self.swap(data)
        self.leave(data)
        assert self.cache.copied_bytes == copied


InPlaceMachine.TestCase.settings = SETTINGS
WindowedMachine.TestCase.settings = SETTINGS
ConcatMachine.TestCase.settings = SETTINGS
TestInPlace = InPlaceMachine.TestCase
TestWindowed = WindowedMachine.TestCase
TestConcat = ConcatMachine.TestCase
