"""ConcatCache against the simplest model of it: a list of numbers per slot."""

import numpy as np
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from edgegen.bundle.manifest import CacheClass, KVLayer, KVSpec
from edgegen.model.concat_cache import ConcatCache
from edgegen.model.ort_session import Buffer

SHAPES = [(2, 3), (1, 4)]
"""(kv_heads, head_dim) of the layers."""

NAMES = ("past_key", "past_value", "present_key", "present_value")
SPEC = KVSpec(
    "float32",
    "concat",
    {"full": CacheClass(None, None, None)},
    tuple(KVLayer("full", heads, dim, *NAMES) for heads, dim in SHAPES),
)


def buffers(values: list[float]) -> list[Buffer]:
    """What a graph would return: keys and values whose every element at a position is that position's value."""
    column = np.array(values, np.float32)[None, None, :, None]
    shapes = [(1, heads, len(values), dim) for heads, dim in SHAPES for _ in "kv"]
    return [Buffer(np.ascontiguousarray(np.broadcast_to(column, shape)) + i) for i, shape in enumerate(shapes)]


def read(cache: ConcatCache, slot: int) -> list[float]:
    past = cache.past(slot)
    for i, (buffer, expected) in enumerate(zip(past, buffers(past[0].array[0, 0, :, 0].tolist()), strict=True)):
        assert np.array_equal(buffer.array, expected.array), i
        assert buffer.ortvalue.shape() == list(buffer.array.shape)
    return past[0].array[0, 0, :, 0].tolist()


class CacheMachine(RuleBasedStateMachine):
    """The live rows are the first ones; each is a list of numbers here."""

    @initialize()
    def begin(self) -> None:
        self.cache = ConcatCache(SPEC)
        self.rows: list[list[float]] = []
        self.next = 0.0

    @rule(count=st.integers(1, 9))
    @precondition(lambda self: len(self.rows) < 4)
    def admit(self, count: int) -> None:
        self.cache.reserve(len(self.rows) + 1, 1000)
        self.cache.truncate(len(self.rows), 0)
        self.rows.append([])
        self.append(len(self.rows) - 1, count)

    @rule(data=st.data(), count=st.integers(1, 5))
    @precondition(lambda self: self.rows)
    def extend(self, data: st.DataObject, count: int) -> None:
        self.append(data.draw(st.integers(0, len(self.rows) - 1)), count)

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
        self.cache.reserve(len(self.rows) + 1, 1)
        copied = self.cache.copied_bytes
        self.cache.fork(source, len(self.rows))
        assert self.cache.copied_bytes == copied
        self.rows.append(list(self.rows[source]))

    @rule(data=st.data())
    @precondition(lambda self: self.rows)
    def leave(self, data: st.DataObject) -> None:
        slot = data.draw(st.integers(0, len(self.rows) - 1))
        moved = self.cache.compact(slot, len(self.rows))
        assert moved == len(self.rows) - 1
        last = self.rows.pop()
        if slot != moved:
            self.rows[slot] = last
        assert self.cache.lengths[moved] == 0

    @invariant()
    def lengths_are_known_without_reading(self) -> None:
        assert self.cache.lengths[: len(self.rows)].tolist() == [len(row) for row in self.rows]

    @rule()
    def rows_are_what_was_written(self) -> None:
        assert [read(self.cache, slot) for slot in range(len(self.rows))] == self.rows

    def append(self, slot: int, count: int) -> None:
        values = [self.next + i for i in range(count)]
        self.next += count
        self.rows[slot] = read(self.cache, slot) + values
        self.cache.replace(slot, buffers(self.rows[slot]))


CacheMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)
TestEveryOperationAgainstLists = CacheMachine.TestCase


def test_forked_slots_share_their_memory_until_one_goes_on() -> None:
    cache = ConcatCache(SPEC)
    cache.reserve(3, 0)
    cache.replace(0, buffers([1.0, 2.0]))
    alone = cache.nbytes
    assert alone == 2 * SPEC.bytes_per_token
    cache.fork(0, 1)
    cache.fork(0, 2)
    assert cache.nbytes == alone
    cache.truncate(1, 1)
    assert (read(cache, 1), read(cache, 0), read(cache, 2)) == ([1.0], [1.0, 2.0], [1.0, 2.0])
    assert cache.copied_bytes == SPEC.bytes_per_token
    assert cache.nbytes == alone + SPEC.bytes_per_token


def test_a_slot_that_is_emptied_holds_no_memory() -> None:
    cache = ConcatCache(SPEC)
    cache.reserve(2, 0)
    cache.replace(1, buffers([1.0, 2.0]))
    cache.truncate(1, 0)
    assert (cache.nbytes, cache.copied_bytes, cache.slots) == (0, 0, 2)
    assert [buffer.array.shape for buffer in cache.past(1)] == [(1, 2, 0, 3)] * 2 + [(1, 1, 0, 4)] * 2
