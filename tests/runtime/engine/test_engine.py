"""Engine over a fake model: whatever order, failure or interrupt, each sequence gets the ids it would get alone."""

from collections.abc import Sequence as Ids
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegen.engine.engine import Engine
from edgegen.engine.finish import OUT_OF_TIME, StopMatch
from edgegen.engine.sequence import Sequence, SequenceGroup, SequenceParams
from edgegen.graph.kernel_operators import SummingOrder
from edgegen.sampling import Candidates, LogitsContext, LogitsPipeline
from edgegen.sampling.sampler import Sampler
from edgegen.system import Deadline
from tests.runtime.models import FakeGraphs, NextId, digest_of, fake_runner, random_ids


def sequence(prompt: list[int], new: int = 5) -> Sequence:
    sampler = Sampler(seed=0, do_sample=False)
    params = SequenceParams(len(prompt), new, LogitsPipeline(), sampler, lambda ids: None)
    return Sequence(list(prompt), params)


def expected(prompt: list[int], new: int, next_id: NextId = digest_of) -> list[int]:
    ids = list(prompt)
    for _ in range(new):
        ids.append(next_id(ids))
    return ids[len(prompt) :]


def engine_of(graphs: FakeGraphs, chunk: int = 4) -> Engine:
    return Engine(fake_runner(graphs), prefill_chunk=chunk)


def finish(engine: Engine, *groups: SequenceGroup) -> None:
    for _ in range(5000):
        if all(group.finished for group in groups):
            return
        engine.step()
    raise AssertionError("the engine does not come to an end")


@settings(deadline=None, max_examples=40)
@given(
    prompts=st.lists(st.lists(st.integers(0, 255), min_size=1, max_size=30), min_size=1, max_size=5),
    chunk=st.integers(2, 12),
    new=st.integers(1, 90),
    together=st.booleans(),
)
def test_requests_and_rows_do_not_mix(prompts: list[list[int]], chunk: int, new: int, together: bool) -> None:
    engine = engine_of(FakeGraphs(digest_of), chunk)
    lengths = [1 + (new + 7 * n) % 23 for n in range(len(prompts))]
    sequences = [sequence(p, n) for p, n in zip(prompts, lengths, strict=True)]
    groups = [SequenceGroup(sequences)] if together else [SequenceGroup([one]) for one in sequences]
    for group in groups:
        engine.add(group)
    finish(engine, *groups)
    answers = [expected(prompt, n) for prompt, n in zip(prompts, lengths, strict=True)]
    assert [one.generated for one in sequences] == answers
    assert all(one.finish == StopMatch("length", None, "max_new_tokens") for one in sequences)


def test_updates_say_what_each_step_appended() -> None:
    engine = engine_of(FakeGraphs(digest_of))
    one = sequence(random_ids(8), 3)
    engine.add(SequenceGroup([one]))
    updates = [engine.step() for _ in range(5)]
    ids = [[(update.sequence, update.new_ids) for update in step] for step in updates]
    assert ids == [[], *([(one, (token,))] for token in one.generated), []]


def test_an_idle_engine_does_nothing() -> None:
    graphs = FakeGraphs(digest_of)
    assert engine_of(graphs).step() == []
    assert graphs.runs == []


def test_a_long_prompt_runs_in_chunks_and_only_then_decodes() -> None:
    graphs = FakeGraphs(digest_of)
    engine = engine_of(graphs, chunk=8)
    group = SequenceGroup([sequence(random_ids(25), 3)])
    engine.add(group)
    finish(engine, group)
    assert graphs.runs == [*[("prefill", n) for n in (8, 8, 7, 2)], ("decode", 1), ("decode", 1)]


class Machine:
    """A clock that a fake model moves on: a run takes 5 ms, and 1 ms for each token of each of its rows."""

    def __init__(self, graphs: FakeGraphs) -> None:
        self.now = 0.0
        self._graphs = graphs
        graphs.after_run = self._run

    def _run(self) -> None:
        self.now += 0.005 + 0.001 * self._graphs.runs[-1][1] * self._graphs.rows


def paces(max_pause: float | None, *, order: SummingOrder = "rows") -> tuple[list[float], list[int], list[Sequence]]:
    """The pauses of a stream while a prompt of 300 tokens is read, the chunks of that, and both sequences."""
    graphs = FakeGraphs(digest_of)
    graphs.order = order
    machine, prompts = Machine(graphs), [random_ids(8), random_ids(300)]
    engine = Engine(fake_runner(graphs), 128, max_pause=max_pause, clock=lambda: machine.now)
    streams = [sequence(prompt, 40) for prompt in prompts]
    engine.add(SequenceGroup([streams[0]]))
    for _ in range(3):
        engine.step()
    engine.add(SequenceGroup([streams[1]]))
    pauses = list[float]()
    while not streams[1].prefilled:
        before = machine.now
        engine.step()
        pauses.append(machine.now - before)
    while not engine.idle:
        engine.step()
    return pauses, [tokens for phase, tokens in graphs.runs[1:] if phase == "prefill"], streams


def test_a_stream_waits_no_longer_than_max_pause_for_anothers_prompt() -> None:
    without, chunks, _ = paces(None)
    assert (max(without), chunks) == (pytest.approx(0.139), [128, 128, 44])
    pauses, chunks, streams = paces(0.06)
    assert sum(chunks) == 300
    assert max(pauses[2:]) <= 0.06  # the first chunks show what a chunk costs
    assert max(chunks[2:]) == 48  # with 64 it would be 75 ms
    assert [one.generated for one in streams] == [one.generated for one in paces(None)[2]]


def test_a_prompt_is_read_however_short_max_pause_is() -> None:
    _, chunks, _ = paces(0.001)
    assert set(chunks[2:-2]) == {16}


def test_a_prompt_that_nobody_waits_for_has_whole_chunks() -> None:
    graphs = FakeGraphs(digest_of)
    machine = Machine(graphs)
    engine = Engine(fake_runner(graphs), 128, max_pause=0.01, clock=lambda: machine.now)
    group = SequenceGroup([sequence(random_ids(300), 3)])
    engine.add(group)
    finish(engine, group)
    assert [tokens for phase, tokens in graphs.runs if phase == "prefill"] == [128, 128, 44]


def test_where_chunks_change_bits_they_stay_as_they_are() -> None:
    assert paces(0.01, order="batch")[1] == [128, 128, 44]


@pytest.mark.parametrize("when", ["between two steps", "within a step"])
def test_a_deadline_counts_by_its_own_clock(when: str) -> None:
    """Which stands still while the computer sleeps, however late it is in the morning."""
    now, graphs = [100.0], FakeGraphs(digest_of)
    prompt = random_ids(4)
    one, other = sequence(prompt, 20), sequence(prompt, 9)
    one.params = replace(one.params, deadline=Deadline.after(60, lambda: now[0]))
    engine, groups = engine_of(graphs), [SequenceGroup([one]), SequenceGroup([other])]
    for group in groups:
        engine.add(group)

    def pass_time() -> None:
        now[0] += 30

    for _ in range(4):
        engine.step()
    pass_time()
    engine.step()
    assert one.finish is None
    before = len(one.generated)
    if when == "between two steps":
        pass_time()
    else:
        graphs.after_run = pass_time
    engine.step()
    assert one.finish == OUT_OF_TIME
    assert one.generated == expected(prompt, before + (when == "within a step"))
    finish(engine, *groups)
    assert other.generated == expected(prompt, 9)


class Broken:
    """A processor, and a rule to stop, that fail at a chosen length."""

    def __init__(self, at: int) -> None:
        self.at = at

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        if len(context.token_ids) == self.at:
            raise RuntimeError("processor")
        return candidates

    def watch(self, ids: Ids[int]) -> None:
        self.at -= len(ids)
        if self.at <= 0:
            raise RuntimeError("watcher")


@pytest.mark.parametrize("part", ["processor", "watcher"])
@pytest.mark.parametrize("at", [1, 3])
def test_a_failing_request_fails_alone(part: str, at: int) -> None:
    graphs = FakeGraphs(digest_of)
    engine = engine_of(graphs)
    prompt = random_ids(10)
    failing, beside, next_one = sequence(prompt, 8), sequence(random_ids(6), 8), sequence(random_ids(7), 8)
    if part == "processor":
        pipeline = LogitsPipeline([Broken(len(prompt) + at - 1)])
        failing.params = replace(failing.params, pipeline=pipeline)
    else:
        failing.params = replace(failing.params, watch=Broken(at).watch)
    groups = [SequenceGroup([failing, beside]), SequenceGroup([next_one])]
    for group in groups:
        engine.add(group)
    finish(engine, *groups)
    assert str(failing.error) == part
    assert failing.finish == StopMatch("cancelled", None)
    assert failing.generated[: at - 1] == expected(prompt, 8)[: at - 1]
    assert (beside.error, next_one.error) == (None, None)
    assert beside.generated == expected(random_ids(6), 8)
    assert next_one.generated == expected(random_ids(7), 8)


def test_a_failing_graph_fails_what_it_ran_for_and_not_the_queue() -> None:
    graphs = FakeGraphs(digest_of)
    engine = engine_of(graphs)
    first, second = sequence(random_ids(10), 8), sequence(random_ids(13), 8)
    groups = [SequenceGroup([first]), SequenceGroup([second])]
    for group in groups:
        engine.add(group)
    for _ in range(4):
        engine.step()

    def fail() -> None:
        graphs.before_run = lambda: None
        raise MemoryError("no memory for this step")

    graphs.before_run = fail
    finish(engine, *groups)
    assert isinstance(first.error, MemoryError)
    assert second.error is None
    assert second.generated == expected(random_ids(13), 8)


def test_rows_that_leave_a_group_early_leave_the_others_alone() -> None:
    graphs = FakeGraphs(digest_of)
    engine = engine_of(graphs)
    prompts = [random_ids(3 + n, seed=n) for n in range(4)]
    sequences = [sequence(prompt, 4 + 5 * (n % 3)) for n, prompt in enumerate(prompts)]
    group = SequenceGroup(sequences)
    engine.add(group)
    for _ in range(7):
        engine.step()
    sequences[2].cancel()
    finish(engine, group)
    for n in (0, 1, 3):
        assert sequences[n].generated == expected(prompts[n], 4 + 5 * (n % 3))
    got = sequences[2].generated
    assert got == expected(prompts[2], len(got))
