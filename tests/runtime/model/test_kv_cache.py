"""KVCache against the simplest model of it: a list of arrays per slot."""

import sys
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from numpy.typing import NDArray

from edgegen.bundle.manifest import CacheClass, KVLayer, KVSpec
from edgegen.errors import UsageError
from edgegen.model.kv_cache import STEP, KVCache
from edgegen.model.kv_snapshot import KVSnapshot
from edgegen.model.sliding_window import BEHIND, CHUNK, SlidingWindow


def spec_of(*shapes: tuple[int, int]) -> KVSpec:
    """A cache of layers with these (kv_heads, head_dim)."""
    names = [tuple(f"{name}.{i}" for name in ("pk", "pv", "rk", "rv")) for i in range(len(shapes))]
    layers = tuple(KVLayer("full", heads, dim, *four) for (heads, dim), four in zip(shapes, names, strict=True))
    return KVSpec("float32", "in_place", {"full": CacheClass(None, "seqlens", "total")}, layers)


SPEC = spec_of((2, 3), (1, 4))
POSITION_BYTES = SPEC.bytes_per_token


def arrays(cache: KVCache) -> list[NDArray[Any]]:
    """Keys and values of every layer, all slots."""
    return [buffer.array for buffer in cache.buffers(0, cache.slots)]


def append(cache: KVCache, slot: int, values: list[float]) -> None:
    """Write positions as a graph would: in place, behind the slot's length, a value per position."""
    start = int(cache.lengths[slot])
    for i, array in enumerate(arrays(cache)):
        for at, value in enumerate(values, start):
            array[slot, :, at] = value + i
    cache.lengths[slot] += len(values)


def read(cache: KVCache, slot: int) -> list[float]:
    """The values of a slot, after a look at whether all layers, heads and dimensions agree."""
    length = int(cache.lengths[slot])
    for i, array in enumerate(arrays(cache)):
        valid = array[slot, :, :length]
        assert (valid == (arrays(cache)[0][slot, :1, :length, :1] + i)).all()
    return arrays(cache)[0][slot, 0, :length, 0].tolist()


class CacheMachine(RuleBasedStateMachine):
    """The live rows are the first ones; each is a list of numbers here."""

    MAX = 300

    @initialize()
    def begin(self) -> None:
        self.cache = KVCache(SPEC, self.MAX)
        self.rows: list[list[float]] = []
        self.saved: list[tuple[KVSnapshot, list[float]]] = []
        self.copied = 0
        self.next = 0.0

    @rule(count=st.integers(1, 90))
    @precondition(lambda self: len(self.rows) < 4)
    def admit(self, count: int) -> None:
        self.make_room(len(self.rows) + 1, count)
        self.cache.truncate(len(self.rows), 0)
        self.rows.append([])
        self.extend(len(self.rows) - 1, count)

    @rule(data=st.data(), count=st.integers(1, 40))
    @precondition(lambda self: self.rows)
    def grow_row(self, data: st.DataObject, count: int) -> None:
        slot = data.draw(st.integers(0, len(self.rows) - 1))
        count = min(count, self.MAX - len(self.rows[slot]))
        self.make_room(len(self.rows), len(self.rows[slot]) + count)
        self.extend(slot, count)

    @rule(data=st.data())
    @precondition(lambda self: self.rows)
    def truncate(self, data: st.DataObject) -> None:
        slot = data.draw(st.integers(0, len(self.rows) - 1))
        length = data.draw(st.integers(0, 2 * len(self.rows[slot])))
        self.cache.truncate(slot, length)
        self.rows[slot] = self.rows[slot][:length]

    @rule(data=st.data())
    @precondition(lambda self: 0 < len(self.rows) < 4)
    def fork(self, data: st.DataObject) -> None:
        source = data.draw(st.integers(0, len(self.rows) - 1))
        self.make_room(len(self.rows) + 1, 1)
        self.cache.fork(source, len(self.rows))
        self.rows.append(list(self.rows[source]))
        self.copied += len(self.rows[source]) * POSITION_BYTES

    @rule(data=st.data())
    @precondition(lambda self: self.rows)
    def leave(self, data: st.DataObject) -> None:
        slot = data.draw(st.integers(0, len(self.rows) - 1))
        moved = self.cache.compact(slot, len(self.rows))
        assert moved == len(self.rows) - 1
        last = self.rows.pop()
        if slot != moved:
            self.rows[slot] = last
            self.copied += len(last) * POSITION_BYTES
        assert self.cache.lengths[moved] == 0

    @rule(data=st.data())
    @precondition(lambda self: len(self.rows) > 1)
    def swap(self, data: st.DataObject) -> None:
        a, b = data.draw(st.permutations(range(len(self.rows))))[:2]
        self.cache.swap(a, b)
        self.rows[a], self.rows[b] = self.rows[b], self.rows[a]
        self.copied += 2 * max(len(self.rows[a]), len(self.rows[b])) * POSITION_BYTES

    @rule(data=st.data())
    @precondition(lambda self: self.rows)
    def save(self, data: st.DataObject) -> None:
        slot = data.draw(st.integers(0, len(self.rows) - 1))
        snapshot = self.cache.save(slot)
        assert (snapshot.length, snapshot.nbytes) == (len(self.rows[slot]), len(self.rows[slot]) * POSITION_BYTES)
        self.saved.append((snapshot, list(self.rows[slot])))
        self.copied += snapshot.nbytes

    @rule(data=st.data())
    @precondition(lambda self: self.saved and len(self.rows) < 4)
    def restore(self, data: st.DataObject) -> None:
        """A snapshot stays as it was, whatever has happened to its slot since."""
        snapshot, values = data.draw(st.sampled_from(self.saved))
        length = data.draw(st.integers(0, len(values)))
        self.make_room(len(self.rows) + 1, length)
        self.cache.restore(len(self.rows), snapshot, length)
        self.rows.append(values[:length])
        self.copied += length * POSITION_BYTES

    @invariant()
    def rows_are_what_was_written(self) -> None:
        assert [read(self.cache, slot) for slot in range(len(self.rows))] == self.rows

    @invariant()
    def copies_are_counted(self) -> None:
        assert self.cache.copied_bytes == self.copied

    @invariant()
    def memory_is_what_is_reserved(self) -> None:
        assert self.cache.nbytes == self.cache.slots * self.cache.capacity * POSITION_BYTES
        assert self.cache.capacity <= self.MAX
        assert self.cache.capacity % STEP == 0 or self.cache.capacity == self.MAX

    def make_room(self, slots: int, length: int) -> None:
        version, capacity, longest = self.cache.version, self.cache.capacity, int(self.cache.lengths.max(initial=0))
        grows = slots > self.cache.slots or length > capacity
        if grows:
            self.copied += self.cache.slots * longest * POSITION_BYTES
        self.cache.reserve(slots, length)
        assert (self.cache.version != version) == grows
        assert self.cache.slots >= slots
        assert self.cache.capacity >= max(length, capacity)

    def extend(self, slot: int, count: int) -> None:
        values = [self.next + i for i in range(count)]
        self.next += count
        append(self.cache, slot, values)
        self.rows[slot] += values


CacheMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestEveryOperationAgainstLists = CacheMachine.TestCase


def test_an_int8_cache_is_a_quarter_of_it_and_moves_what_it_holds() -> None:
    cache = KVCache(replace(SPEC, dtype="int8"), 1000)
    cache.reserve(2, 10)
    append(cache, 0, [-100.0, 7.0, 120.0])
    cache.reserve(2, 100)
    cache.fork(0, 1)
    assert (read(cache, 0), read(cache, 1)) == ([-100, 7, 120], [-100, 7, 120])
    assert {array.dtype for array in arrays(cache)} == {np.dtype(np.int8)}
    assert cache.nbytes == 2 * 128 * POSITION_BYTES // 4
    assert cache.copied_bytes == 9 * POSITION_BYTES // 4  # three positions of two slots, and of the fork


def test_an_empty_cache_has_no_memory() -> None:
    cache = KVCache(SPEC, 1000)
    assert (cache.nbytes, cache.slots, cache.capacity) == (0, 0, 0)


def test_capacity_grows_in_steps_and_by_half_but_never_beyond_the_context() -> None:
    cache = KVCache(SPEC, 1000)
    seen: list[int] = []
    for length in range(1, 1001):
        cache.reserve(1, length)
        if not seen or seen[-1] != cache.capacity:
            seen.append(cache.capacity)
    assert seen == [64, 128, 192, 320, 512, 768, 1000]


def test_all_copies_of_a_long_generation_are_a_small_multiple_of_its_length() -> None:
    cache = KVCache(SPEC, 100_000)
    for length in range(1, 20_001):
        cache.reserve(1, length)
        cache.lengths[0] = length
    assert cache.copied_bytes < 3 * 20_000 * POSITION_BYTES


def test_memory_follows_what_is_asked_for_and_not_the_models_context() -> None:
    cache = KVCache(SPEC, 1_000_000)
    cache.reserve(1, 70)
    assert cache.nbytes == 128 * POSITION_BYTES


def test_truncating_moves_nothing_and_never_lengthens() -> None:
    cache = KVCache(SPEC, 64)
    cache.reserve(1, 10)
    append(cache, 0, [1.0, 2.0, 3.0])
    version = cache.version
    cache.truncate(0, 2)
    cache.truncate(0, 50)
    assert (read(cache, 0), cache.version, cache.copied_bytes) == ([1.0, 2.0], version, 0)


def test_buffers_are_views_of_the_cache_kept_until_it_grows() -> None:
    cache = KVCache(SPEC, 1000)
    cache.reserve(3, 10)
    part = cache.buffers(1, 2)
    assert cache.buffers(1, 2) is part
    assert [buffer.array.shape for buffer in part] == [(2, 2, 64, 3)] * 2 + [(2, 1, 64, 4)] * 2
    assert all(np.shares_memory(one.array, all_.array) for one, all_ in zip(part, cache.buffers(0, 3), strict=True))
    assert all(buffer.ortvalue.data_ptr() == buffer.array.ctypes.data for buffer in part)
    cache.reserve(3, 65)
    assert not any(np.shares_memory(old.array, new.array) for old, new in zip(part, cache.buffers(1, 2), strict=True))


def test_growth_frees_each_layer_as_it_goes() -> None:
    cache = KVCache(spec_of((1, 64), (1, 64), (1, 64)), 1000)
    cache.reserve(1, 64)
    old = [weakref.ref(array.base) for array in arrays(cache)]
    cache.grow(1, 128)
    assert [reference() for reference in old] == [None] * 6


class InterruptedCache(KVCache):
    """Ctrl-C in the middle of a growth."""

    allocations_left = 10**6

    def _empty(self, index: int, slots: int, capacity: int) -> NDArray[Any]:
        self.allocations_left -= 1
        if self.allocations_left < 0:
            raise KeyboardInterrupt
        return super()._empty(index, slots, capacity)


@pytest.mark.parametrize("done", range(4))
@pytest.mark.parametrize(("slots", "capacity"), [(1, 128), (3, 64), (3, 128)])
def test_a_growth_that_is_interrupted_is_begun_again(done: int, slots: int, capacity: int) -> None:
    cache = InterruptedCache(SPEC, 1000)
    cache.reserve(1, 10)
    append(cache, 0, [5.0, 6.0, 7.0])
    version = cache.version
    cache.allocations_left = done
    with pytest.raises(KeyboardInterrupt):
        cache.reserve(slots, capacity)
    assert (cache.slots, cache.capacity) == (1, 64)
    assert cache.version != version  # or the arrays already moved would stay bound
    cache.allocations_left = sys.maxsize
    assert read(cache, 0) == [5.0, 6.0, 7.0]
    cache.reserve(slots, capacity)
    assert read(cache, 0) == [5.0, 6.0, 7.0]
    assert {array.shape[::2] for array in arrays(cache)} == {(slots, capacity)}


# Windows.

WINDOW = SlidingWindow(size=20, step=8)
ROOM = WINDOW.room(CHUNK)
NEAR_BYTES, FAR_BYTES = 2 * 2 * 3 * 4, 2 * 1 * 4 * 4


def windowed_cache(context: int = 100_000) -> KVCache:
    """A layer with a window, and one without."""
    near, far = SPEC.layers
    classes = {"near": CacheClass(WINDOW.size, "s.near", "t.near"), "far": CacheClass(None, "s.far", "t.far")}
    layers = (replace(near, cache_class="near"), replace(far, cache_class="far"))
    return KVCache(replace(SPEC, classes=classes, layers=layers), context, windows={"near": WINDOW})


def put(cache: KVCache, slot: int, values: list[float]) -> None:
    """As a run does: room is made, and every layer appends where the slot ends."""
    cache.make_room(slot, 1, len(values))
    near_key, near_value, far_key, far_value = arrays(cache)
    for at, value in enumerate(values, int(cache.lengths[slot])):
        for name, pair in (("near", (near_key, near_value)), ("far", (far_key, far_value))):
            place = at - int(cache.bases[name][slot])
            pair[0][slot, :, place] = value
            pair[1][slot, :, place] = value + 1
    cache.lengths[slot] += len(values)


def kept(cache: KVCache, name: str, slot: int) -> list[float]:
    """What a class keeps of a slot, after a look at whether its arrays agree."""
    key, value = arrays(cache)[:2] if name == "near" else arrays(cache)[2:]
    held = int(cache.lengths[slot] - cache.bases[name][slot])
    assert (key[slot, :, :held] + 1 == value[slot, :, :held]).all()
    assert (key[slot, :, :held] == key[slot, :1, :held, :1]).all()
    return key[slot, 0, :held, 0].tolist()


class WindowedMachine(RuleBasedStateMachine):
    """As above, with rows far longer than their window."""

    @initialize()
    def begin(self) -> None:
        self.cache = windowed_cache()
        self.rows: list[list[float]] = []
        self.saved: list[tuple[KVSnapshot, list[float]]] = []
        self.next = 0.0
        self.longest_run = CHUNK

    def values(self, count: int) -> list[float]:
        self.next += count
        return [self.next + i for i in range(count)]

    @rule(count=st.integers(1, 300))
    @precondition(lambda self: len(self.rows) < 3)
    def admit(self, count: int) -> None:
        self.cache.reserve(len(self.rows) + 1, count)
        self.cache.truncate(len(self.rows), 0)
        self.rows.append([])
        self.extend(len(self.rows) - 1, count)

    @rule(data=st.data(), count=st.integers(1, 130))
    @precondition(lambda self: self.rows)
    def grow_row(self, data: st.DataObject, count: int) -> None:
        self.extend(data.draw(st.integers(0, len(self.rows) - 1)), count)

    def extend(self, slot: int, count: int) -> None:
        values = self.values(count)
        put(self.cache, slot, values)
        self.longest_run = max(self.longest_run, -(-count // STEP) * STEP)
        self.rows[slot] += values

    @rule(data=st.data(), back=st.integers(0, BEHIND))
    @precondition(lambda self: self.rows)
    def step_back(self, data: st.DataObject, back: int) -> None:
        slot = data.draw(st.integers(0, len(self.rows) - 1))
        length = max(0, len(self.rows[slot]) - back)
        if length and (len(self.rows[slot]) - self.most_behind(slot)) > length:
            return
        self.cache.truncate(slot, length)
        self.rows[slot] = self.rows[slot][:length]

    def most_behind(self, slot: int) -> int:
        """How many positions a row may be stepped back."""
        base = int(self.cache.bases["near"][slot])
        return len(self.rows[slot]) - (base + WINDOW.size - 1) if base else len(self.rows[slot])

    @rule(data=st.data())
    @precondition(lambda self: 0 < len(self.rows) < 3)
    def fork(self, data: st.DataObject) -> None:
        source = data.draw(st.integers(0, len(self.rows) - 1))
        self.cache.reserve(len(self.rows) + 1, 1)
        self.cache.fork(source, len(self.rows))
        self.rows.append(list(self.rows[source]))

    @rule(data=st.data())
    @precondition(lambda self: self.rows)
    def leave(self, data: st.DataObject) -> None:
        slot = data.draw(st.integers(0, len(self.rows) - 1))
        moved = self.cache.compact(slot, len(self.rows))
        last = self.rows.pop()
        if slot != moved:
            self.rows[slot] = last
        assert self.cache.lengths[moved] == self.cache.bases["near"][moved] == 0

    @rule(data=st.data())
    @precondition(lambda self: len(self.rows) > 1)
    def swap(self, data: st.DataObject) -> None:
        a, b = data.draw(st.permutations(range(len(self.rows))))[:2]
        self.cache.swap(a, b)
        self.rows[a], self.rows[b] = self.rows[b], self.rows[a]

    @rule(data=st.data())
    @precondition(lambda self: self.rows)
    def save(self, data: st.DataObject) -> None:
        slot = data.draw(st.integers(0, len(self.rows) - 1))
        self.saved.append((self.cache.save(slot), list(self.rows[slot])))

    @rule(data=st.data())
    @precondition(lambda self: self.saved and len(self.rows) < 3)
    def restore(self, data: st.DataObject) -> None:
        """As far back as the window allows, or nothing."""
        snapshot, values = data.draw(st.sampled_from(self.saved))
        length = data.draw(st.integers(max(0, len(values) - 2 * BEHIND), len(values)))
        base = snapshot.bases["near"]
        assert self.cache.can_restore(snapshot, length) == (not length or base <= max(0, length - WINDOW.size + 1))
        if not self.cache.can_restore(snapshot, length):
            length = len(values)
        self.cache.restore(len(self.rows), snapshot, length)
        self.rows.append(values[:length])

    @invariant()
    def rows_are_what_was_written_as_far_as_they_are_seen(self) -> None:
        for slot, row in enumerate(self.rows):
            base = int(self.cache.bases["near"][slot])
            assert base % WINDOW.step == 0
            assert base <= max(0, len(row) - WINDOW.size + 1)
            assert kept(self.cache, "near", slot) == row[base:]
            assert kept(self.cache, "far", slot) == row

    @invariant()
    def memory_of_the_window_is_bounded(self) -> None:
        near, _, far, _ = arrays(self.cache)
        assert near.shape[2] == min(self.cache.capacity, WINDOW.room(self.longest_run))
        assert far.shape[2] == self.cache.capacity


WindowedMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestEveryOperationOfAWindowAgainstLists = WindowedMachine.TestCase


def test_a_text_of_any_length_takes_the_memory_of_its_window() -> None:
    cache = windowed_cache()
    for at in range(20_000):
        put(cache, 0, [float(at)])
    assert cache.nbytes == ROOM * NEAR_BYTES + cache.capacity * FAR_BYTES
    base = int(cache.bases["near"][0])
    assert kept(cache, "near", 0) == list(range(base, 20_000))


def test_slides_copy_less_than_a_window_for_as_many_tokens() -> None:
    cache = windowed_cache()
    cache.reserve(1, 20_000)
    before = cache.version
    for at in range(20_000):
        put(cache, 0, [float(at)])
    assert cache.copied_bytes <= 20_000 * NEAR_BYTES * (WINDOW.size + BEHIND + WINDOW.step) / CHUNK
    assert cache.version == before  # what is bound stays bound


def test_a_long_run_gets_the_room_it_needs() -> None:
    cache = windowed_cache()
    put(cache, 0, list(map(float, range(1000))))
    put(cache, 0, list(map(float, range(1000, 1007))))
    assert kept(cache, "near", 0)[-WINDOW.size :] == list(range(1007 - WINDOW.size, 1007))


def test_a_window_beyond_the_context_costs_nothing() -> None:
    cache, plain = windowed_cache(), KVCache(SPEC, 100_000)
    for one in (cache, plain):
        one.reserve(2, 100)
    assert cache.nbytes == plain.nbytes
    put(cache, 0, [1.0] * 100)
    assert cache.bases["near"].tolist() == [0, 0]
    assert cache.copied_bytes == 0


def test_what_is_no_longer_kept_cannot_be_gone_back_to() -> None:
    cache = windowed_cache()
    for at in range(500):
        put(cache, 0, [float(at)])
    base = int(cache.bases["near"][0])
    with pytest.raises(UsageError, match=r"slot 0 of the cache cannot go back to 100 positions: of its 500"):
        cache.truncate(0, 100)
    assert cache.lengths.tolist() == [500]
    cache.truncate(0, base + WINDOW.size - 1)  # whose next query sees the first that is kept
    with pytest.raises(UsageError):
        cache.truncate(0, base + WINDOW.size - 2)
    cache.truncate(0, 0)
    assert (cache.lengths.tolist(), cache.bases["near"].tolist()) == ([0], [0])


def test_the_last_positions_can_be_gone_back_over_at_any_moment() -> None:
    cache = windowed_cache()
    for at in range(700):
        put(cache, 0, [float(at)])
        if at > BEHIND:
            cache.truncate(0, at + 1 - BEHIND)
            put(cache, 0, list(map(float, range(at + 1 - BEHIND, at + 1))))
    assert kept(cache, "near", 0)[-WINDOW.size :] == list(range(700 - WINDOW.size, 700))


def test_a_slide_that_is_interrupted_leaves_its_slot_empty() -> None:
    cache = windowed_cache()
    cache.reserve(2, 10)
    put(cache, 1, [1.0, 2.0])
    for start, stop in ((0, 100), (100, ROOM)):
        put(cache, 0, list(map(float, range(start, stop))))
    cache._arrays[1].flags.writeable = False  # pyright: ignore[reportPrivateUsage]
    with pytest.raises(ValueError, match="read-only"):
        cache.make_room(0, 1, 1)
    cache._arrays[1].flags.writeable = True  # pyright: ignore[reportPrivateUsage]
    assert cache.lengths.tolist() == [0, 2]
    put(cache, 0, [5.0, 6.0])
    assert (kept(cache, "near", 0), kept(cache, "near", 1)) == ([5.0, 6.0], [1.0, 2.0])
