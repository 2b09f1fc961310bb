"""CacheSlots and prefix caching: a prompt that shares a prefix with an earlier sequence reuses its KV cache."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegen.engine.engine import Engine
from edgegen.engine.prefix_cache import CachedPrefix, PrefixCache
from edgegen.engine.sequence import Sequence, SequenceGroup, SequenceParams
from edgegen.errors import MemoryBudgetError
from edgegen.model.in_place_runner import InPlaceRunner
from edgegen.model.kv_snapshot import KVSnapshot
from edgegen.sampling import LogitsPipeline
from edgegen.sampling.sampler import Sampler
from tests.runtime.models import FakeGraphs, digest_of, fake_runner, fake_variant, random_ids

POSITION = 8
"""Bytes of keys and values of one position of the fake model."""

MANY = 1 << 20


class WatchedRunner(InPlaceRunner):
    """Hands out the cache it makes; chunk-invariant unless told otherwise."""

    chunk_invariance: Any = "any"

    def __init__(self, graphs: FakeGraphs) -> None:
        super().__init__(graphs, fake_variant(), graphs.vocab_size, 2048)

    def new_cache(self, budget: int | None = None) -> Any:
        self.cache = super().new_cache(budget)
        return self.cache


def sequence(prompt: list[int], new: int = 5) -> Sequence:
    sampler = Sampler(seed=0, do_sample=False)
    params = SequenceParams(len(prompt), new, LogitsPipeline(), sampler, lambda ids: None)
    return Sequence(list(prompt), params)


def engine_of(graphs: FakeGraphs, prefix_budget: int | None = MANY, **more: Any) -> Engine:
    return Engine(fake_runner(graphs, 2048), 8, prefix_budget=prefix_budget, **more)


def answer(engine: Engine, *rows: Sequence) -> None:
    groups = [SequenceGroup([row]) for row in rows]
    for group in groups:
        engine.add(group)
    for _ in range(5000):
        if all(group.finished for group in groups):
            return
        engine.step()
    raise AssertionError("the engine does not come to an end")


def expected(prompt: list[int], new: int) -> list[int]:
    ids = list(prompt)
    for _ in range(new):
        ids.append(digest_of(ids))
    return ids[len(prompt) :]


@pytest.mark.parametrize("budget", [None, MANY])
def test_a_conversation_that_goes_on_is_computed_from_where_it_stopped_and_not_copied(budget: int | None) -> None:
    graphs = FakeGraphs(digest_of)
    runner = WatchedRunner(graphs)
    engine = Engine(runner, 8, prefix_budget=budget)
    text, reused = random_ids(40), list[int]()
    for turn in range(4):
        row = sequence(text, 6)
        answer(engine, row)
        assert row.generated == expected(text, 6)
        reused.append(row.kv.reused)
        if turn == 0:
            runner.cache.reserve(1, 400)
            runner.cache.copied_bytes = 0
        text = [*row.ids, *random_ids(10, seed=turn)]
    assert reused == [0, 45, 61, 77]
    assert runner.cache.copied_bytes == 0


def test_of_two_questions_behind_one_beginning_the_second_computes_its_own_part() -> None:
    graphs = FakeGraphs(digest_of)
    engine = engine_of(graphs)
    system = random_ids(50)
    rows = [sequence([*system, *random_ids(9, seed=n)], 6) for n in range(1, 4)]
    for row in rows:
        answer(engine, row)
    assert [row.kv.reused for row in rows] == [0, 50, 50]
    assert [row.generated for row in rows] == [expected(row.ids[:59], 6) for row in rows]


def test_what_still_runs_can_be_begun_from() -> None:
    engine = engine_of(FakeGraphs(digest_of))
    system = random_ids(50)
    rows = [sequence([*system, *random_ids(9, seed=n)], 30) for n in range(1, 5)]
    answer(engine, *rows)
    assert [row.kv.reused for row in rows] == [0, 50, 50, 50]
    assert [row.generated for row in rows] == [expected(row.ids[:59], 30) for row in rows]


def test_the_last_two_ids_of_a_prompt_are_always_computed() -> None:
    engine = engine_of(FakeGraphs(digest_of))
    rows = [sequence(random_ids(30)) for _ in range(2)]
    for row in rows:
        answer(engine, row)
    assert rows[1].kv.reused == 28
    assert rows[1].generated == rows[0].generated == expected(random_ids(30), 5)


@pytest.mark.parametrize(
    ("options", "reused"),
    [({}, [0, 0]), ({"deterministic": True}, [0, 0]), ({"prefix_budget": 0}, [0, 0])],
    ids=["too short", "short and deterministic", "none kept"],
)
def test_short_beginnings_are_computed(options: dict[str, Any], reused: list[int]) -> None:
    engine = engine_of(FakeGraphs(digest_of), **options)
    length = 60 if "prefix_budget" in options else 9
    rows = [sequence(random_ids(length)) for _ in range(2)]
    for row in rows:
        answer(engine, row)
    assert [row.kv.reused for row in rows] == reused


@pytest.mark.parametrize(("chunk_invariance", "reused"), [("any", 45), ("chunks", 40), ("none", 0)])
def test_deterministic_takes_over_what_it_would_compute_itself(chunk_invariance: str, reused: int) -> None:
    """Positions 40 to 44 were computed one by one: with float32 keys and values, other bits than in a chunk."""
    runner = WatchedRunner(FakeGraphs(digest_of))
    runner.chunk_invariance = chunk_invariance
    engine = Engine(runner, 8, prefix_budget=MANY, deterministic=True)
    first = sequence(random_ids(40), 6)
    answer(engine, first)
    second = sequence([*first.ids, *random_ids(10, seed=1)], 6)
    answer(engine, second)
    assert second.kv.reused == reused
    assert second.generated == expected(second.ids[:56], 6)


def test_without_a_budget_a_text_is_forgotten_when_its_place_is_needed() -> None:
    engine = engine_of(FakeGraphs(digest_of), None)
    rows = [sequence(random_ids(40, seed=seed)) for seed in (0, 0, 1, 0)]
    for row in rows:
        answer(engine, row)
    assert [row.kv.reused for row in rows] == [0, 38, 0, 0]


def test_texts_whose_place_is_needed_are_kept_elsewhere_up_to_the_budget() -> None:
    engine = engine_of(FakeGraphs(digest_of), prefix_budget=200 * POSITION)
    texts = [random_ids(80, seed=n) for n in range(4)]
    for text in texts:
        answer(engine, sequence(text, 5))  # 84 positions each: two and one in the slot are kept
    again = [sequence(text, 5) for text in (*texts[1:], texts[0])]
    for row in again:
        answer(engine, row)
    assert [row.kv.reused for row in again] == [78, 78, 78, 0]
    assert [row.generated for row in again] == [expected(row.ids[:80], 5) for row in again]


@settings(deadline=None, max_examples=60)
@given(data=st.data())
def test_whatever_joins_leaves_and_is_cancelled_each_gets_its_own(data: st.DataObject) -> None:
    """Prompts that begin alike in many ways, budgets small and large, priorities, and rows that end in any order."""
    graphs = FakeGraphs(digest_of)
    budget = data.draw(st.sampled_from([0, None, 40 * POSITION, MANY]))
    kv_budget = data.draw(st.sampled_from([None, 4 * 150 * POSITION]))
    runner = WatchedRunner(graphs)
    rows_at_once = data.draw(st.integers(1, 4))
    engine = Engine(runner, 8, prefix_budget=budget, kv_budget=kv_budget, max_batch_size=rows_at_once)
    stem = random_ids(60)
    rows = list[Sequence]()
    requests = data.draw(
        st.lists(
            st.tuples(st.integers(0, 60), st.integers(1, 30), st.integers(1, 40), st.integers(0, 3)),
            min_size=1,
            max_size=10,
        )
    )
    for n, (shared, own, new, priority) in enumerate(requests):
        source = data.draw(st.sampled_from([stem, *(row.ids for row in rows)]))
        prompt = [*source[:shared], *random_ids(own, seed=n)]
        row = sequence(prompt, new)
        group = SequenceGroup([row])
        group.priority = priority
        rows.append(row)
        engine.add(group)
        for _ in range(data.draw(st.integers(0, 12))):
            engine.step()
            assert kv_budget is None or runner.cache.nbytes <= kv_budget
        if data.draw(st.integers(0, 5)) == 0:
            data.draw(st.sampled_from(rows)).cancel()
    for _ in range(3000):
        if engine.idle:
            break
        engine.step()
    assert engine.idle
    for row in rows:
        right = expected(row.ids[: row.params.prompt_length], len(row.generated))
        assert row.generated == right
        assert row.error is None
        assert row.finish is not None
        assert row.finish.reason == "cancelled" or len(row.generated) == row.params.max_new_tokens


class TestBudget:
    def test_a_request_that_can_never_fit_is_refused_with_numbers(self) -> None:
        engine = engine_of(FakeGraphs(digest_of), kv_budget=100_000 * POSITION)
        with pytest.raises(MemoryBudgetError) as raised:
            engine.add(SequenceGroup([sequence(random_ids(500), 90_000), sequence(random_ids(500), 90_000)]))
        assert str(raised.value) == (
            "the request may need 1.4 MB of KV cache (2 sequences of up to 90,499 positions), and kv_budget allows "
            "0.8 MB: ask for fewer new tokens or answers, shorten the prompt, or raise kv_budget."
        )
        assert engine.idle

    def test_one_that_must_wait_waits(self) -> None:
        engine = engine_of(FakeGraphs(digest_of), kv_budget=1000 * POSITION)
        rows = [sequence(random_ids(300), 300) for _ in range(3)]
        answer(engine, *rows)
        assert [row.generated for row in rows] == [expected(random_ids(300), 300)] * 3

    def test_kept_texts_make_room(self) -> None:
        runner = WatchedRunner(FakeGraphs(digest_of))
        engine = Engine(runner, 8, prefix_budget=MANY, kv_budget=1024 * POSITION)
        answer(engine, *(sequence(random_ids(100, seed=n), 100) for n in range(4)))
        assert runner.cache.slots == 4
        long = sequence(random_ids(500, seed=9), 400)
        answer(engine, long)
        assert runner.cache.nbytes <= 1024 * POSITION
        again = sequence(random_ids(100, seed=3), 5)
        answer(engine, again)
        assert again.kv.reused == 98


class TestPrefixCache:
    @staticmethod
    def snapshot(length: int) -> KVSnapshot:
        array = np.zeros((1, length, 1), np.float32)
        return KVSnapshot(length, {"full": 0}, (array, array))

    def test_a_longer_text_takes_the_place_of_its_beginning(self) -> None:
        cache = PrefixCache(MANY)
        for length in (20, 40):
            cache.add(CachedPrefix.of(range(length), length), self.snapshot(length))
        assert cache.nbytes == 40 * POSITION
        assert cache.find(np.arange(30), lambda snapshot, length: length)[0] == 30

    def test_what_was_not_used_for_longest_goes_first(self) -> None:
        cache = PrefixCache(100 * POSITION)
        texts = {n: np.arange(n, n + 40) for n in (0, 100, 200)}
        for n in (0, 100):
            cache.add(CachedPrefix(texts[n], 40), self.snapshot(40))
        length, snapshot = cache.find(texts[0][:15], lambda snapshot, length: length)
        assert length == 15
        assert snapshot is not None
        cache.use(snapshot, length)
        cache.add(CachedPrefix(texts[200], 40), self.snapshot(40))
        assert [cache.find(texts[n], lambda snapshot, length: length)[0] for n in (0, 100, 200)] == [40, 0, 40]

    def test_a_text_that_goes_on_elsewhere_is_kept_no_more(self) -> None:
        cache = PrefixCache(MANY)
        snapshot = self.snapshot(40)
        cache.add(CachedPrefix.of(range(40), 40), snapshot)
        cache.use(snapshot, 19)
        assert cache.nbytes == snapshot.nbytes
        cache.use(snapshot, 20)
        assert cache.nbytes == 0

    def test_what_is_larger_than_the_budget_is_not_kept(self) -> None:
        cache = PrefixCache(10 * POSITION)
        cache.add(CachedPrefix.of(range(20), 20), self.snapshot(20))
        assert cache.nbytes == 0

    def test_what_cannot_be_restored_is_not_found(self) -> None:
        cache = PrefixCache(MANY)
        cache.add(CachedPrefix.of(range(20), 20), self.snapshot(20))
        assert cache.find(np.arange(20), lambda snapshot, length: 0) == (0, None)
        assert replace(CachedPrefix.of(range(20), 5)).shared_with(np.arange(20)) == 5
