"""Engine over a fake model with a fixed state: before each run it is that of the tokens in the cache."""

from collections.abc import Callable
from collections.abc import Sequence as Ids
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgegen.bundle.layer_state import FixedState
from edgegen.bundle.manifest import GraphVariant, Phase
from edgegen.engine.beam_group import BeamGroup
from edgegen.engine.beam_search import BeamSearch
from edgegen.engine.engine import Engine
from edgegen.engine.finish import CANCELLED
from edgegen.engine.sequence import SequenceGroup
from edgegen.graph.pending_tokens import SPANS, pending_input
from edgegen.model.in_place_runner import InPlaceRunner
from edgegen.model.kv_cache import KVCache
from edgegen.model.ort_session import Binding
from tests.runtime.engine.test_windowed_engine import Proposals, answer_to, finish, sequence
from tests.runtime.models import FakeBinding, FakeGraphs, NextId, RandomGraphs, digest_of, fake_variant, random_ids

CONTEXT = 2000
STATE = FixedState(0, "past_state", "present_state", (2,))


def state_of(ids: list[int]) -> tuple[float, float]:
    """Return the state after a run over ``ids``: a digest of them, exact in float32, and their number."""
    digest = 0
    for token in ids:
        digest = (digest * 31 + token + 1) % 65521
    return float(digest), float(len(ids))


class HybridGraphs(FakeGraphs):
    """``pending``: how many tokens at the end of a run can be left out of the state."""

    def __init__(self, next_id: NextId, pending: int = 0) -> None:
        super().__init__(next_id)
        self.pending = {STATE.past: (pending, 1)} if pending else {}

    def binding(self, phase: Phase) -> Binding:
        return HybridBinding(self, phase)


class HybridBinding(FakeBinding):
    def run(self) -> None:
        """The state must be that of the ids in the cache; a run that fails leaves it half written."""
        a, states = self.arrays, self.arrays[STATE.past]
        starts, tokens = a["position_ids"][:, 0].tolist(), a["input_ids"].shape[1]
        spans = a[SPANS].tolist() if self.graphs.pending else [(0, tokens)] * len(starts)
        left = a.get(pending_input(STATE.past), np.zeros((len(starts), 0, 1)))[:, :, 0]
        for row, (start, (first, _)) in enumerate(zip(starts, spans, strict=True)):
            before = a["past.key"][row, 0, :start, 0].astype(int).tolist()
            assert tuple(states[row].tolist()) == state_of(before[: start - first])
            assert left[row, :first].tolist() == before[start - first :]
        states[...] = left[...] = np.nan
        super().run()
        for row, (start, (_, whole)) in enumerate(zip(starts, spans, strict=True)):
            ids = a["past.key"][row, 0, : start + tokens, 0].astype(int).tolist()
            states[row] = state_of(ids[: start + whole])
            left[row, : tokens - whole] = ids[start + whole :]


def hybrid_variant() -> GraphVariant:
    variant = fake_variant()
    (layer,) = variant.kv.layers
    return replace(variant, kv=replace(variant.kv, layers=(replace(layer, layer=1),), fixed=(STATE,)))


def hybrid_engine(
    graphs: HybridGraphs | None = None, chunk: int = 64, prefix_budget: int | None = None, max_batch_size: int = 8
) -> Engine:
    graphs = graphs or HybridGraphs(digest_of)
    runner = InPlaceRunner(graphs, hybrid_variant(), graphs.vocab_size, CONTEXT)
    return Engine(runner, chunk, prefix_budget=prefix_budget, max_batch_size=max_batch_size)


@settings(deadline=None, max_examples=25)
@given(
    lengths=st.lists(st.integers(1, 200), min_size=1, max_size=4),
    chunk=st.sampled_from([2, 7, 64, 128]),
    new=st.integers(1, 80),
)
def test_rows_of_a_batch_have_states_of_their_own(lengths: list[int], chunk: int, new: int) -> None:
    prompts = [random_ids(length, seed=length) for length in lengths]
    rows = [sequence(prompt, 1 + (new + 31 * n) % 80) for n, prompt in enumerate(prompts)]
    finish(hybrid_engine(chunk=chunk), *(SequenceGroup([row]) for row in rows))
    assert [row.generated for row in rows] == [
        answer_to(row.ids[: row.params.prompt_length], row.params.max_new_tokens) for row in rows
    ]


@settings(deadline=None, max_examples=60)
@given(
    turns=st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 300), st.integers(1, 60), st.integers(1, 60)), max_size=8
    ),
    budget=st.sampled_from([0, None, 1 << 12, 1 << 20]),
    together=st.booleans(),
)
def test_texts_are_gone_on_with_from_a_checkpoint(
    turns: list[tuple[int, int, int, int]], budget: int | None, together: bool
) -> None:
    """Each prompt begins like an earlier text (which one, how far), and has ids of its own."""
    engine, first = hybrid_engine(prefix_budget=budget), random_ids(200)
    texts, rows = [first], list[tuple[list[int], int]]()
    for n, (which, shared, own, new) in enumerate(turns):
        prompt = [*texts[which % len(texts)][:shared], *random_ids(own, seed=n)]
        rows.append((prompt, new))
        texts.append([*prompt, *answer_to(prompt, new)])
    sequences = [sequence(prompt, new) for prompt, new in rows]
    for batch in [sequences] if together else [[row] for row in sequences]:
        finish(engine, *(SequenceGroup([row]) for row in batch))
    assert [row.generated for row in sequences] == [answer_to(prompt, new) for prompt, new in rows]


def test_a_chat_computes_only_what_is_new() -> None:
    engine, ids = hybrid_engine(), random_ids(300)
    for turn in range(10):
        row = sequence(ids, 40)
        finish(engine, SequenceGroup([row]))
        assert row.generated == answer_to(ids, 40)
        if turn:
            assert row.kv.reused == len(ids) - 21  # all but what the user said, and the last token of the answer
        ids = [*row.ids, *random_ids(20, seed=turn)]


def test_a_chat_whose_template_drops_the_answers_thinking_goes_on_from_the_end_of_the_prompt() -> None:
    engine, ids = hybrid_engine(), random_ids(300)
    finish(engine, SequenceGroup([sequence(ids, 40)]))
    row = sequence([*ids, *random_ids(50, seed=1)], 40)
    finish(engine, SequenceGroup([row]))
    assert row.kv.reused == 300
    assert row.generated == answer_to(row.ids[:350], 40)


@pytest.mark.parametrize("prefix_budget", [None, 1 << 20], ids=["slots", "snapshots"])
def test_where_two_prompts_part_a_third_goes_on(prefix_budget: int | None) -> None:
    engine, system = hybrid_engine(chunk=64, prefix_budget=prefix_budget, max_batch_size=1), random_ids(250)
    for n, reused in enumerate([0, 192, 250, 250]):
        row = sequence([*system, *random_ids(40, seed=n)], 10)
        finish(engine, SequenceGroup([row]))
        assert row.kv.reused == reused
        assert row.generated == answer_to(row.ids[:290], 10)


def test_a_prompt_that_is_asked_again_and_again_is_computed_twice() -> None:
    engine, ids = hybrid_engine(), random_ids(250)
    for reused in (0, 192, 248, 248):
        row = sequence(ids, 10)
        finish(engine, SequenceGroup([row]))
        assert row.kv.reused == reused
        assert row.generated == answer_to(ids, 10)


def test_rejected_proposals_are_run_again_with_the_next_ones() -> None:
    """Few rejections cost a run of their own."""
    graphs, ids = HybridGraphs(digest_of), random_ids(100)
    row = sequence(ids, 60, Proposals(digest_of, 4, 2))
    finish(hybrid_engine(graphs), SequenceGroup([row]))
    again = len(graphs.runs) - 2 - row.speculation.runs  # two of the prompt
    assert row.generated == answer_to(ids, 60)
    assert row.speculation.accepted < row.speculation.proposed
    assert again <= row.speculation.runs // 3


def test_a_batch_that_fails_late_is_computed_again_from_the_last_checkpoint() -> None:
    def fail() -> None:
        raise RuntimeError("broken")

    graphs = HybridGraphs(digest_of)
    graphs.before_run = at_run(400, fail)
    rows = [sequence(random_ids(length, seed=length), 600) for length in (70, 90)]
    finish(hybrid_engine(graphs), *(SequenceGroup([row]) for row in rows))
    assert [row.generated for row in rows] == [answer_to(row.ids[: row.params.prompt_length], 600) for row in rows]
    prefilled = sum(tokens for phase, tokens in graphs.runs if phase == "prefill")
    assert 70 + 90 < prefilled <= 70 + 90 + 2 * 256


@settings(deadline=None, max_examples=60)
@given(
    count=st.integers(1, 40), right=st.integers(0, 40), prompt=st.integers(1, 150), pending=st.sampled_from([0, 1, 4])
)
def test_what_was_proposed_in_vain_is_taken_back(count: int, right: int, prompt: int, pending: int) -> None:
    ids = random_ids(prompt)
    row = sequence(ids, 60, Proposals(digest_of, count, right))
    engine = hybrid_engine(HybridGraphs(digest_of, pending), chunk=64)
    finish(engine, SequenceGroup([row]))
    assert row.generated == answer_to(ids, 60)
    later = sequence([*row.ids, 7, 8], 20)
    finish(engine, SequenceGroup([later]))
    assert later.generated == answer_to([*row.ids, 7, 8], 20)


def test_with_pending_tokens_nothing_runs_again() -> None:
    graphs, ids = HybridGraphs(digest_of, pending=4), random_ids(100)
    row = sequence(ids, 60, Proposals(digest_of, 4, 2))
    finish(hybrid_engine(graphs), SequenceGroup([row]))
    assert row.generated == answer_to(ids, 60)
    assert row.speculation.accepted < row.speculation.proposed
    assert max(tokens for _, tokens in graphs.runs[2:]) == 5
    assert len(graphs.runs) == 2 + row.speculation.runs + (60 - 1 - row.speculation.accepted - row.speculation.runs)


class BatchProposals(Proposals):
    """In a batch, too."""

    def propose_in_batch(self, token_ids: Ids[int], sequences: int) -> list[int]:
        return self.propose(token_ids)


@settings(deadline=None, max_examples=30)
@given(
    counts=st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5), st.integers(1, 60)), min_size=2, max_size=4),
    pending=st.sampled_from([0, 4]),
)
def test_states_of_a_batch_are_rolled_back_each_by_itself(counts: list[tuple[int, int, int]], pending: int) -> None:
    graphs = HybridGraphs(digest_of, pending)
    graphs.attends_batches, graphs.order = True, "fixed"
    prompts = [random_ids(20 + 7 * n, seed=n) for n in range(len(counts))]
    rows = [
        sequence(prompt, new, BatchProposals(digest_of, count, min(right, count), always_accepted=False))
        for prompt, (count, right, new) in zip(prompts, counts, strict=True)
    ]
    finish(hybrid_engine(graphs), *(SequenceGroup([row]) for row in rows))
    assert [row.generated for row in rows] == [
        answer_to(prompt, new) for prompt, (_, _, new) in zip(prompts, counts, strict=True)
    ]


class FirstProposals(Proposals):
    """Proposals for a text of up to 600 ids."""

    def propose(self, token_ids: Ids[int]) -> list[int]:
        return super().propose(token_ids) if len(token_ids) <= 600 else []


def test_after_proposals_there_are_checkpoints_too() -> None:
    """Of a batch that fails, no request is computed again from its prompt on."""

    def fail() -> None:
        if graphs.rows == 2 and not failed:
            failed.append(True)
            raise RuntimeError("broken")

    failed, graphs = list[bool](), HybridGraphs(digest_of, pending=4)
    graphs.after_run = fail
    rows = [sequence(random_ids(10), 700, FirstProposals(digest_of, 4, 1)), sequence(random_ids(30, seed=1), 600)]
    engine = hybrid_engine(graphs)
    finish(engine, *(SequenceGroup([row]) for row in rows))
    assert failed
    assert [row.generated for row in rows] == [
        answer_to(row.ids[: row.params.prompt_length], row.params.max_new_tokens) for row in rows
    ]
    assert sum(tokens for phase, tokens in graphs.runs if phase == "prefill") <= 10 + 30 + 256


def test_rows_with_the_same_prompt_begin_where_it_begins() -> None:
    ids = random_ids(150)
    first = sequence(ids, 60)
    others = [sequence(ids, count, source=first) for count in (20, 50)]
    finish(hybrid_engine(), SequenceGroup([first, *others]))
    assert [row.generated for row in (first, *others)] == [answer_to(ids, count) for count in (60, 20, 50)]


def at_run(left: int, act: Callable[[], None]) -> Callable[[], None]:
    """Calls ``act`` at the ``left``-th call."""
    calls = iter(range(1, 10**6))
    return lambda: act() if next(calls) == left else None


@pytest.mark.parametrize("at", range(1, 14))
@pytest.mark.parametrize("hook", ["before_run", "after_run"])
def test_a_run_that_fails_is_as_if_it_had_not_been(at: int, hook: str) -> None:
    """Of several requests each is run by itself then, from the states before; alone, it ends, and others go on."""

    def fail() -> None:
        raise RuntimeError("broken")

    graphs = HybridGraphs(digest_of)
    setattr(graphs, hook, at_run(at, fail))
    rows = [sequence(random_ids(length, seed=length), 8) for length in (70, 90, 30)]
    engine, groups = hybrid_engine(graphs), [SequenceGroup([row]) for row in rows]
    for group in groups:
        engine.add(group)
    while not all(group.finished for group in groups):
        engine.step()
    failed = [row for row in rows if row.error is not None]
    assert len(failed) <= 1
    for row in rows:
        if row not in failed:
            assert row.generated == answer_to(row.ids[: row.params.prompt_length], 8)
    again = [sequence([*row.ids, 5, 6], 8) for row in rows]
    finish(engine, *(SequenceGroup([row]) for row in again))
    assert [row.generated for row in again] == [answer_to([*row.ids, 5, 6], 8) for row in rows]


@pytest.mark.parametrize("at", range(1, 9))
def test_what_a_cancelled_request_leaves_can_be_gone_on_with(at: int) -> None:
    graphs = HybridGraphs(digest_of)
    row = sequence(random_ids(150), 8)
    engine, group = hybrid_engine(graphs), SequenceGroup([row])
    graphs.before_run = at_run(at, lambda: engine.cancel(group))
    engine.add(group)
    while not group.finished:
        engine.step()
    engine.step()
    assert row.finish == CANCELLED
    later = sequence([*row.ids, 3, 4, 5], 8)
    finish(engine, SequenceGroup([later]))
    assert later.generated == answer_to([*row.ids, 3, 4, 5], 8)


class RandomHybridGraphs(RandomGraphs):
    def binding(self, phase: Phase) -> Binding:
        return HybridBinding(self, phase)


class CountingCache(KVCache):
    """Counts the bytes of forks, and what is exchanged."""

    forks = forked = swaps = 0

    def fork(self, source: int, target: int) -> None:
        before = self.copied_bytes
        super().fork(source, target)
        self.forks += 1
        self.forked += self.copied_bytes - before

    def swap(self, a: int, b: int) -> None:
        super().swap(a, b)
        self.swaps += 1


class CountingRunner(InPlaceRunner):
    def new_cache(self, budget: int | None = None) -> KVCache:
        self.cache = CountingCache(hybrid_variant().kv, CONTEXT, budget=budget)
        return self.cache


class CountingSearch(BeamSearch):
    duplicates = 0

    def advance(self, log_probs: NDArray[np.float32]) -> None:
        super().advance(log_probs)
        if not self.done:
            self.duplicates += len(self.running) - len({beam.parent for beam in self.running})


@pytest.mark.parametrize("seed", range(6))
def test_beams_are_reordered_by_index_and_only_duplicates_are_copied(seed: int) -> None:
    graphs, prompt, new, beams = RandomHybridGraphs(seed, spread=0.5), random_ids(20), 30, 5
    runner = CountingRunner(graphs, hybrid_variant(), graphs.vocab_size, CONTEXT)
    engine = Engine(runner, 64)
    runner.cache.reserve(beams, 64, 64)
    first = sequence(prompt, new)
    rows = [first, *(sequence(prompt, new, source=first) for _ in range(beams - 1))]
    search = CountingSearch(beams, new, lambda ids: False)
    finish(engine, BeamGroup(rows, search, 1))
    cache, kv = runner.cache, hybrid_variant().kv
    assert 0 < search.duplicates < beams * new // 2
    assert cache.forks == beams - 1 + search.duplicates
    assert cache.swaps == 0
    at_least, at_most = (kv.bytes_per_row + kv.bytes_per_token * length for length in (20, 20 + new))
    assert cache.forks * at_least < cache.forked < cache.forks * at_most
    assert cache.copied_bytes - cache.forked == kv.bytes_per_row  # the checkpoint at the end of the prompt
