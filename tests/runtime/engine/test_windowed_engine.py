"""Engine over a fake model with a window: whatever it asks of the cache, the last positions are there."""

from collections.abc import Sequence as Ids
from dataclasses import dataclass, replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegen.bundle.manifest import CacheClass, GraphVariant, Phase
from edgegen.engine.engine import Engine
from edgegen.engine.sequence import Sequence, SequenceGroup, SequenceParams
from edgegen.model.in_place_runner import InPlaceRunner
from edgegen.model.kv_cache import KVCache
from edgegen.model.ort_session import Binding
from edgegen.model.sliding_window import BEHIND, CHUNK, SlidingWindow
from edgegen.sampling import LogitsPipeline
from edgegen.sampling.sampler import Sampler
from edgegen.speculation.proposer import Proposer
from tests.runtime.models import FakeBinding, FakeGraphs, NextId, digest_of, fake_variant, random_ids

WINDOW = SlidingWindow(size=10, step=4)
CONTEXT = 2000


class WindowedGraphs(FakeGraphs):
    """A layer that sees everything, and one that must find the same ids in its window."""

    def binding(self, phase: Phase) -> Binding:
        return WindowedBinding(self, phase)


class WindowedBinding(FakeBinding):
    def run(self) -> None:
        super().run()
        a, tokens = self.arrays, self.arrays["input_ids"].shape[1]
        assert a["near.total"] == a["near.seqlens"].max() + 1 <= a["past.near.key"].shape[2]
        for row, (ids, last) in enumerate(zip(a["input_ids"], a["near.seqlens"], strict=True)):
            base = int(a["seqlens"][row] - last)
            assert base % WINDOW.step == 0
            keys, values = a["past.near.key"][row, 0, :, 0], a["past.near.value"][row, 0, :, 0]
            keys[last + 1 - tokens : last + 1] = values[last + 1 - tokens : last + 1] = ids
            first = max(0, int(a["position_ids"][row, 0]) - WINDOW.size + 1)  # that the first query sees
            assert first >= base
            for found in (keys, values):
                assert (found[first - base : last + 1] == a["past.key"][row, 0, first : base + last + 1, 0]).all()


def windowed_variant() -> GraphVariant:
    variant = fake_variant()
    (far,) = variant.kv.layers
    near = replace(far, cache_class="near", past_key="past.near.key", past_value="past.near.value")
    near = replace(near, present_key="present.near.key", present_value="present.near.value")
    classes = {**variant.kv.classes, "near": CacheClass(WINDOW.size, "near.seqlens", "near.total")}
    return replace(variant, kv=replace(variant.kv, classes=classes, layers=(far, near)))


class WindowedRunner(InPlaceRunner):
    """Steps as small as no machine has them; hands out the cache it makes."""

    def __init__(self, graphs: FakeGraphs) -> None:
        self.kv = windowed_variant().kv
        super().__init__(graphs, windowed_variant(), graphs.vocab_size, CONTEXT)

    def new_cache(self, budget: int | None = None) -> KVCache:
        self.cache = KVCache(self.kv, CONTEXT, windows={"near": WINDOW}, budget=budget)
        return self.cache


@dataclass
class Proposals:
    """Proposes ``count`` ids, the first ``right`` of them as they will be."""

    next_id: NextId
    count: int
    right: int
    always_accepted: bool = True

    def propose(self, token_ids: Ids[int]) -> list[int]:
        known = list(token_ids)
        for k in range(self.count):
            known.append(self.next_id(known) if k < self.right else 3)
        return known[len(token_ids) :]

    def verified(self, proposed: int, accepted: int) -> None:
        pass


def sequence(prompt: list[int], new: int, *proposers: Proposer, source: Sequence | None = None) -> Sequence:
    sampler = Sampler(seed=0, do_sample=False)
    params = SequenceParams(len(prompt), new, LogitsPipeline(), sampler, lambda ids: None)
    return Sequence(list(prompt), params, source, proposers)


def answer_to(prompt: list[int], new: int) -> list[int]:
    ids = list(prompt)
    for _ in range(new):
        ids.append(digest_of(ids))
    return ids[len(prompt) :]


def finish(engine: Engine, *groups: SequenceGroup) -> None:
    for group in groups:
        engine.add(group)
    for _ in range(5000):
        if all(group.finished for group in groups):
            break
        engine.step()
    for group in groups:
        assert [row.error for row in group] == [None] * len(group.sequences)
        assert group.finished


@settings(deadline=None, max_examples=25)
@given(
    lengths=st.lists(st.integers(1, 400), min_size=1, max_size=4),
    chunk=st.sampled_from([2, 7, 64, 128, 300]),
    new=st.integers(1, 250),
)
def test_rows_slide_each_for_itself(lengths: list[int], chunk: int, new: int) -> None:
    prompts = [random_ids(length, seed=length) for length in lengths]
    rows = [sequence(prompt, 1 + (new + 31 * n) % 250) for n, prompt in enumerate(prompts)]
    finish(Engine(WindowedRunner(WindowedGraphs(digest_of)), chunk), SequenceGroup(rows))
    assert [row.generated for row in rows] == [
        answer_to(row.ids[: row.params.prompt_length], row.params.max_new_tokens) for row in rows
    ]


@settings(deadline=None, max_examples=40)
@given(
    turns=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 300), st.integers(1, 60), st.integers(1, 60)), max_size=8
    ),
    budget=st.sampled_from([None, 1 << 12, 1 << 20]),
)
def test_texts_are_gone_on_with_where_their_windows_allow_it(
    turns: list[tuple[int, int, int, int]], budget: int | None
) -> None:
    """Each prompt begins like an earlier text (which one, how far), and has ids of its own."""
    engine = Engine(WindowedRunner(WindowedGraphs(digest_of)), 64, prefix_budget=budget)
    texts = [random_ids(200)]
    for n, (which, shared, own, new) in enumerate(turns):
        prompt = [*texts[which % len(texts)][:shared], *random_ids(own, seed=n)]
        row = sequence(prompt, new)
        finish(engine, SequenceGroup([row]))
        assert row.generated == answer_to(prompt, new)
        texts.append(row.ids)


def test_a_chat_goes_on_behind_its_window() -> None:
    engine = Engine(WindowedRunner(WindowedGraphs(digest_of)), 64, prefix_budget=None)
    first = sequence(random_ids(300), 40)
    finish(engine, SequenceGroup([first]))
    second = sequence([*first.ids, *random_ids(20, seed=1)], 40)
    finish(engine, SequenceGroup([second]))
    assert second.kv.reused == 339
    assert second.generated == answer_to(second.ids[:360], 40)


@settings(deadline=None, max_examples=25)
@given(count=st.integers(1, 128), right=st.integers(0, 128), prompt=st.integers(1, 300))
def test_what_was_proposed_in_vain_is_taken_back(count: int, right: int, prompt: int) -> None:
    ids = random_ids(prompt)
    row = sequence(ids, 300, Proposals(digest_of, count, right))
    finish(Engine(WindowedRunner(WindowedGraphs(digest_of)), 128), SequenceGroup([row]))
    assert row.generated == answer_to(ids, 300)


def test_rows_with_the_same_prompt_begin_where_it_begins() -> None:
    ids = random_ids(400)
    first = sequence(ids, 200)
    others = [sequence(ids, count, source=first) for count in (20, 150)]
    runner = WindowedRunner(WindowedGraphs(digest_of))
    finish(Engine(runner, 128), SequenceGroup([first, *others]))
    assert [row.generated for row in (first, *others)] == [answer_to(ids, count) for count in (200, 20, 150)]


@pytest.mark.parametrize("new", [300, 1500])
def test_memory_of_the_window_does_not_grow(new: int) -> None:
    runner = WindowedRunner(WindowedGraphs(digest_of))
    finish(Engine(runner, CHUNK), SequenceGroup([sequence(random_ids(300), new)]))
    near = runner.cache.buffers(0, 1)[2].array
    assert near.shape == (1, 1, WINDOW.size + BEHIND + WINDOW.step + CHUNK, 1)
