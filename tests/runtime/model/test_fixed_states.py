"""FixedStates: where a slot can be rolled back to, and that it finds there what was there."""

from collections.abc import Callable

import numpy as np
import pytest

from edgegen.bundle.layer_state import FixedState
from edgegen.bundle.manifest import CacheClass, KVLayer, KVSpec
from edgegen.errors import UsageError
from edgegen.graph.pending_tokens import MOST_PENDING
from edgegen.model.fixed_states import FixedStates
from edgegen.model.kv_cache import KVCache
from edgegen.model.state_checkpoints import CHECKPOINTS, FEWEST, ROOM

LAYER = KVLayer("full", 1, 1, "pk", "pv", "nk", "nv", layer=1)
SPECS = (FixedState(0, "p0", "n0", (2, 3)), FixedState(2, "p2", "n2", (4,)))


def states(slots: int = 2) -> FixedStates:
    one = FixedStates(SPECS)
    one.resize(slots)
    return one


def run(one: FixedStates, slot: int, length: int) -> None:
    """A run that leaves the number ``length`` everywhere."""
    one.begin(slot, 1)
    write(one, slot, length)
    one.end(slot, [length])


def write(one: FixedStates, slot: int, value: float) -> None:
    for buffer in one.buffers(slot, 1):
        buffer.array[...] = value


def value(one: FixedStates, slot: int) -> float:
    (found,) = {float(x) for buffer in one.buffers(slot, 1) for x in buffer.array.ravel()}
    return found


def test_a_new_slot_is_zero_and_can_go_nowhere() -> None:
    one = states()
    assert value(one, 1) == 0
    assert list(one.positions(1)) == []
    assert [buffer.array.shape for buffer in one.buffers(0, 2)] == [(2, 2, 3), (2, 4)]


def test_a_slot_can_be_rolled_back_to_its_checkpoints_alone() -> None:
    one = states()
    for length in (5, 6, 7):
        run(one, 0, length)
        if length == 6:
            one.checkpoint(0)
    assert list(one.positions(0)) == [7, 6]
    one.roll_back(0, 6)
    assert value(one, 0) == 6
    run(one, 0, 9)
    assert list(one.positions(0)) == [9, 6]


def test_what_an_interrupted_run_has_written_is_invalid() -> None:
    one = states()
    run(one, 0, 5)
    one.checkpoint(0)
    one.begin(0, 1)
    write(one, 0, np.nan)
    assert list(one.positions(0)) == [5]
    one.roll_back(0, 5)
    assert value(one, 0) == 5


def test_many_checkpoints_are_thinned_out_and_stay_spread() -> None:
    one = states()
    for length in range(1, 101):
        run(one, 0, length)
        one.checkpoint(0)
    kept = list(one.positions(0))
    assert len(kept) == CHECKPOINTS
    assert min(kept) < 70
    assert max(kept) > 95
    for at in sorted(kept, reverse=True):
        one.roll_back(0, at)
        assert value(one, 0) == at
    assert list(one.positions(0)) == [min(kept)]


def test_what_other_texts_will_go_on_from_stays_longest() -> None:
    one = states()
    for length in range(1, 101):
        run(one, 0, length)
        one.checkpoint(0, shared_prefix=length in (3, 40))
    one.checkpoint(0)  # once more: it stays what it was
    assert {3, 40} < set(one.positions(0))
    assert len(list(one.positions(0))) == CHECKPOINTS


def test_of_large_states_there_are_fewer_checkpoints() -> None:
    for nbytes, most in ((ROOM // 8, 8), (ROOM // 4, 4), (ROOM, FEWEST)):
        one = FixedStates((FixedState(0, "p", "n", (nbytes // 4,)),))
        assert one.bytes_per_slot == (1 + most) * nbytes


def test_a_checkpoint_stays_what_it_was() -> None:
    one = states()
    run(one, 0, 4)
    one.checkpoint(0)
    one.fork(0, 1)
    for slot in (0, 1):
        run(one, slot, 10)
        run(one, slot, 20)
    one.swap(0, 1, np.empty(24, np.uint8))
    saved = one.save(0)
    assert set(saved) == {4, 20}
    one.clear(0)
    assert (value(one, 0), list(one.positions(0))) == (0, [])
    one.restore(0, saved, 4)
    assert (value(one, 0), list(one.positions(0))) == (4, [4])
    one.restore(0, saved, 20)
    assert (value(one, 0), list(one.positions(0))) == (20, [20, 4])
    assert value(one, 1) == 20


def test_more_slots_keep_what_there_was() -> None:
    one = states(1)
    run(one, 0, 5)
    one.checkpoint(0)
    run(one, 0, 8)
    run(one, 0, 9)
    one.resize(3)
    assert (value(one, 0), list(one.positions(0)), value(one, 2)) == (9, [9, 5], 0)


def test_bytes_are_those_of_states_and_checkpoints() -> None:
    one, row = states(2), 4 * (6 + 4)
    assert one.nbytes == 2 * row
    run(one, 0, 5)
    one.checkpoint(0)
    one.fork(0, 1)  # which shares the checkpoint
    assert one.nbytes == 2 * row + row
    assert one.bytes_per_slot == (1 + CHECKPOINTS) * row + 2 * 4 * MOST_PENDING * (2 * 3 + 2)  # as of a scan


def test_without_states_there_is_nothing_to_do() -> None:
    none = FixedStates(())
    none.resize(3)
    none.begin(0, 2)
    assert none.nbytes == none.bytes_per_slot == 0
    assert (none.save(0), none.buffers(0, 3)) == ({}, [])


def test_a_cache_says_how_far_back_a_slot_can_go() -> None:
    cache = KVCache(KVSpec("float32", "in_place", {"full": CacheClass(None, "s", "t")}, (LAYER,), SPECS), 100)
    cache.reserve(1, 40)
    for tokens in (10, 10, 1):
        with cache.running(0, 1, tokens):
            pass
        if cache.lengths[0] == 10:
            cache.checkpoint(0)
    assert [cache.truncatable_length(0, length) for length in (21, 20, 19, 10, 9, 0)] == [21, 10, 10, 10, 0, 0]
    snapshot = cache.save(0)
    assert [cache.restorable_length(snapshot, length) for length in (21, 20, 10, 9)] == [21, 10, 10, 0]
    with pytest.raises(UsageError, match=r"cannot be truncated to 15 of its 21 positions: .*; truncate to 10"):
        cache.truncate(0, 15)
    cache.truncate(0, 10)
    assert cache.lengths[0] == 10
    with pytest.raises(KeyError), cache.running(0, 1, 3):
        raise KeyError
    assert (cache.lengths[0], cache.truncatable_length(0, 10)) == (10, 10)


def test_a_cache_counts_what_it_copies_of_states() -> None:
    cache = KVCache(KVSpec("float32", "in_place", {"full": CacheClass(None, "s", "t")}, (LAYER,), SPECS), 100)
    row, position = 4 * (6 + 4), 2 * 4
    cache.reserve(2, 40)
    with cache.running(0, 1, 10):
        pass

    def counted(act: Callable[[], object]) -> int:
        before = cache.copied_bytes
        act()
        return cache.copied_bytes - before

    assert counted(lambda: cache.checkpoint(0)) == row
    assert counted(lambda: cache.checkpoint(0, shared_prefix=True)) == 0  # there is one
    assert counted(lambda: cache.truncate(0, 10)) == 0  # it is there
    with pytest.raises(KeyError), cache.running(0, 1, 3):
        raise KeyError
    assert counted(lambda: cache.truncate(0, 10)) == row
    assert counted(lambda: cache.fork(0, 1)) == row + 10 * position
    assert counted(lambda: cache.swap(0, 1)) == 2 * (row + 10 * position)
    snapshot = cache.save(0)
    assert counted(lambda: cache.save(0)) == row + 10 * position
    assert counted(lambda: cache.restore(1, snapshot, 10)) == row + 10 * position
    assert counted(lambda: cache.reserve(3, 40)) == 2 * row + 2 * 10 * position


def test_a_mark_is_a_checkpoint_until_the_next_one() -> None:
    one = states()
    for length in (3, 5):
        run(one, 0, length)
        one.mark(0, 2)
    run(one, 0, 9)
    one.fork(0, 1)
    assert list(one.positions(0)) == [9, 5]
    assert list(one.positions(1)) == [9]  # a mark is not shared
    one.roll_back(0, 5)
    assert value(one, 0) == 5.0
    run(one, 0, 8)
    one.roll_back(0, 5)  # and again
    assert value(one, 0) == 5.0
    one.clear(0)
    assert list(one.positions(0)) == []


def test_a_mark_takes_the_place_of_a_checkpoint() -> None:
    one = states(1)
    for length in range(1, 40):
        run(one, 0, length)
        one.checkpoint(0)
    run(one, 0, 50)
    one.mark(0, 2)
    run(one, 0, 60)
    one.checkpoint(0)
    assert one.nbytes == (1 + CHECKPOINTS) * 4 * (6 + 4)


def pending(slots: int = 2) -> FixedStates:
    """States that runs of five tokens at most need no mark for."""
    one = FixedStates(SPECS, ((4, 8), (4, 3)))
    one.resize(slots)
    return one


def run_pending(one: FixedStates, slot: int, length: int, tokens: int) -> list[int]:
    """A run of ``tokens`` after ``length``, which leaves all but the first out of states; the spans that it is told."""
    one.begin(slot, 1, tokens, tokens - 1)
    *arrays, spans = (buffer.array for buffer in one.buffers(slot, 1))
    for array in arrays[:2]:
        array[...] = length + 1
    for array in arrays[2:]:
        array[:, : tokens - 1] = np.arange(tokens - 1)[:, None] + length + 2
    one.end(slot, [length + tokens], tokens - 1)
    return spans[0].tolist()


def test_a_slot_can_be_rolled_back_to_its_pending_tokens_and_nothing_moves() -> None:
    one = pending()
    assert [buffer.array.shape for buffer in one.buffers(0, 2)] == [(2, 2, 3), (2, 4), (2, 4, 8), (2, 4, 3), (2, 2)]
    assert run_pending(one, 0, 7, 5) == [0, 1]
    assert list(one.positions(0)) == [12, 11, 10, 9, 8]
    assert one.roll_back(0, 10) == 0
    assert list(one.positions(0)) == [10, 9, 8]
    assert run_pending(one, 0, 10, 3) == [2, 1]
    assert one.roll_back(0, 11) == 0
    assert run_pending(one, 0, 11, 1) == [0, 1]
    assert list(one.positions(0)) == [12]


def test_what_is_copied_is_at_the_states_before_pending_tokens() -> None:
    one = pending()
    run_pending(one, 0, 7, 4)
    one.roll_back(0, 10)
    one.checkpoint(0)
    assert set(one.save(0)) == {8}
    run_pending(one, 0, 10, 2)
    assert list(one.positions(0)) == [12, 11, 8]
    one.roll_back(0, 8)
    assert run_pending(one, 0, 8, 1) == [0, 1]


def test_slots_change_with_their_pending_tokens() -> None:
    one = pending()
    run_pending(one, 0, 7, 4)
    one.roll_back(0, 10)
    one.fork(0, 1)
    one.clear(0)
    assert run_pending(one, 0, 0, 1) == [0, 1]
    one.swap(0, 1, np.empty(one.largest, np.uint8))
    one.resize(3)
    assert [list(one.positions(slot)) for slot in range(3)] == [[10, 9, 8], [1], []]
    tokens = [buffer.array[0, :2, 0].tolist() for buffer in one.buffers(0, 1)[2:4]]
    assert tokens == [[9, 10], [9, 10]]
    assert run_pending(one, 0, 10, 1) == [2, 1]


def test_only_a_longer_proposal_needs_a_mark_which_has_the_pending_tokens() -> None:
    one = pending()
    run_pending(one, 0, 7, 4)
    one.roll_back(0, 10)
    assert one.mark(0, 5) == 0
    assert one.mark(0, 6) > 0
    one.begin(0, 1, 6, 4)
    for buffer in one.buffers(0, 1)[:4]:
        buffer.array[...] = np.nan
    one.end(0, [16], 4)
    assert list(one.positions(0)) == [16, 15, 14, 13, 12, 10]
    one.roll_back(0, 10)
    assert run_pending(one, 0, 10, 2) == [2, 1]
    assert list(one.positions(0)) == [12, 11, 10]
    one.checkpoint(0)
    assert one.nbytes < 2 * one.bytes_per_slot


def test_a_run_that_fails_leaves_nothing_of_pending_tokens() -> None:
    one = pending()
    run_pending(one, 0, 4, 1)
    one.checkpoint(0)
    run_pending(one, 0, 5, 5)
    one.begin(0, 1, 3, 2)
    assert list(one.positions(0)) == [5]
    one.roll_back(0, 5)
    assert run_pending(one, 0, 5, 1) == [0, 1]
