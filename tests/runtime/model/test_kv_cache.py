"""KVCache: growth, memory, views, interruptions and windows. Its operations are tested in test_caches.py."""

import sys
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen.bundle.manifest import KVLayer
from edgegen.errors import UsageError
from edgegen.model.kv_cache import KVCache
from edgegen.model.kv_snapshot import snapshot_problem
from edgegen.model.sliding_window import BEHIND, CHUNK
from tests.runtime.model.caches import (
    FAR_BYTES,
    NEAR_BYTES,
    POSITION_BYTES,
    ROOM,
    SPEC,
    WINDOW,
    append,
    arrays,
    kept,
    put,
    read,
    spec_of,
    windowed_cache,
)


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


def test_a_latent_is_kept_once_and_moves_with_the_others() -> None:
    first, last = SPEC.layers
    spec = replace(SPEC, layers=(replace(first, latent=True), last))
    cache = KVCache(spec, 1000)
    cache.reserve(2, 10)
    append(cache, 0, [1.0, 2.0, 3.0])
    cache.reserve(2, 100)
    cache.fork(0, 1)
    assert [array.shape for array in arrays(cache)] == [(2, 2, 128, 3), (2, 1, 128, 4), (2, 1, 128, 4)]
    assert (read(cache, 0), read(cache, 1)) == ([1, 2, 3], [1, 2, 3])
    assert cache.nbytes == 2 * 128 * spec.bytes_per_token
    snapshot = cache.save(1)
    assert snapshot_problem(snapshot, spec, "float32") is None
    assert snapshot_problem(snapshot, SPEC, "float32") == "its KV cache has other shapes or types"
    other = KVCache(spec, 1000)
    other.restore(0, snapshot, 2)
    assert read(other, 0) == [1, 2]


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

    def _empty(self, layer: KVLayer, slots: int, capacity: int) -> NDArray[Any]:
        self.allocations_left -= 1
        if self.allocations_left < 0:
            raise KeyboardInterrupt
        return super()._empty(layer, slots, capacity)


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
    with pytest.raises(UsageError, match=r"slot 0 of the cache cannot be truncated to 100 of its 500 positions"):
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
