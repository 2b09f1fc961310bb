"""BatchExecutor over a fake model: what each kind of work runs, and what it leaves in the KV cache."""

import numpy as np
import pytest

from edgegen.engine.executor import BatchExecutor
from edgegen.engine.finish import CANCELLED, LIMIT
from edgegen.engine.scheduler import Decode, Prefill, Verify
from edgegen.engine.sequence import Logits, Sequence, SequenceGroup, SequenceParams
from edgegen.model.ort_session import RunSwitch
from edgegen.sampling import LogitsPipeline
from edgegen.sampling.sampler import Sampler
from tests.runtime.models import FailAt, FakeGraphs, digest_of, fake_runner, random_ids


def sequence(prompt: list[int]) -> Sequence:
    greedy = Sampler(seed=0, do_sample=False)
    params = SequenceParams(len(prompt), 20, LogitsPipeline(), greedy, lambda ids: None)
    return Sequence(list(prompt), params)


def demand() -> tuple[int, int]:
    return 2, 60


@pytest.fixture
def graphs() -> FakeGraphs:
    return FakeGraphs(digest_of)


def executor_of(graphs: FakeGraphs, *, chunk: int = 8) -> BatchExecutor:
    return BatchExecutor(fake_runner(graphs), chunk)


def prefill(executor: BatchExecutor, *rows: Sequence) -> None:
    """Each in a group of its own, up to its first token."""
    for row in rows:
        work = Prefill(SequenceGroup([row]), row)
        while not row.generated:
            for logits in executor.run(work, demand).values():
                row.append(best(logits))


def best(logits: Logits) -> int:
    return int(np.argmax(logits))


def test_a_prompt_is_prefilled_in_chunks_and_the_last_gives_logits(graphs: FakeGraphs) -> None:
    executor, row = executor_of(graphs), sequence(random_ids(20))
    work = Prefill(SequenceGroup([row]), row)
    assert [executor.run(work, demand) for _ in range(2)] == [{}, {}]
    assert row.kv.cached == 16
    logits = executor.run(work, demand)
    assert best(logits[row]) == digest_of(row.ids)
    assert [tokens for _, tokens in graphs.runs] == [8, 8, 4]
    assert graphs.logits_of_runs == [0, 0, 1]  # the head has no rows before


def test_sequences_that_share_a_prompt_get_a_copy_of_its_cache(graphs: FakeGraphs) -> None:
    executor, first, second = executor_of(graphs), sequence(random_ids(5)), sequence(random_ids(5))
    second.prefill_source = first
    logits = executor.run(Prefill(SequenceGroup([first, second]), first), demand)
    assert [*logits] == [first, second]
    assert [row.kv.cached for row in (first, second)] == [5, 5]
    assert first.kv.slot != second.kv.slot
    assert second.times.started == first.times.started > 0


def test_a_decode_batch_adds_one_token_to_each_sequence(graphs: FakeGraphs) -> None:
    executor, rows = executor_of(graphs), [sequence(random_ids(n, seed=n)) for n in (5, 7, 3)]
    prefill(executor, *rows)
    chosen = (rows[2], rows[0])
    logits = executor.run(Decode((), chosen), demand)
    assert {row.kv.slot for row in chosen} == {0, 1}
    assert all(best(logits[row]) == digest_of(row.ids) for row in chosen)
    assert [row.kv.cached for row in rows] == [6, 7, 4]


def test_of_a_proposal_only_what_is_accepted_stays(graphs: FakeGraphs) -> None:
    executor, row = executor_of(graphs), sequence(random_ids(6))
    prefill(executor, row)
    right = digest_of(row.ids)
    work = Verify(SequenceGroup([row]), row, (right, right + 1))
    logits = executor.run(work, demand)[row]
    assert [best(position) for position in logits[:2]] == [right, digest_of([*row.ids, right])]
    assert row.kv.cached == 6
    executor.accept(row, 2)
    assert row.kv.cached == 8
    row.ids += [right, digest_of([*row.ids, right])]
    assert best(executor.run(Decode((), (row,)), demand)[row]) == digest_of(row.ids)


def test_what_a_failed_run_has_appended_is_computed_again(graphs: FakeGraphs) -> None:
    executor, row = executor_of(graphs), sequence(random_ids(6))
    prefill(executor, row)
    graphs.after_run = FailAt(1, RuntimeError("the graph failed"))
    with pytest.raises(RuntimeError, match="the graph failed"):
        executor.run(Decode((), (row,)), demand)
    assert row.kv.cached == 6
    assert best(executor.run(Decode((), (row,)), demand)[row]) == digest_of(row.ids)


class CountingSwitch(RunSwitch):
    interrupts = 0

    def interrupt(self) -> None:
        self.interrupts += 1
        super().interrupt()


@pytest.mark.parametrize("ended", [1, 2])
def test_a_run_is_interrupted_once_nobody_waits_for_it(graphs: FakeGraphs, ended: int) -> None:
    graphs.switch = switch = CountingSwitch()
    executor, rows = executor_of(graphs), [sequence(random_ids(n)) for n in (4, 5)]
    prefill(executor, *rows)

    def cancel() -> None:
        for row in rows[:ended]:
            row.cancel()
        executor.interrupt_abandoned()

    graphs.after_run = cancel
    executor.run(Decode((), tuple(rows)), demand)
    assert switch.interrupts == (ended == 2)
    executor.interrupt_abandoned()  # nothing runs
    assert switch.interrupts == (ended == 2)
    assert not switch.run_options.terminate  # the next run goes through


def test_the_cache_of_a_sequence_that_has_ended_is_saved_unless_it_was_cancelled(graphs: FakeGraphs) -> None:
    executor, rows = executor_of(graphs), [sequence(random_ids(5)) for _ in range(3)]
    prefill(executor, *rows)
    for row, finish in zip(rows, (LIMIT, CANCELLED, None), strict=True):
        row.finish = finish
        executor.save(row)
    assert [row.kv.kept and row.kv.kept.length for row in rows] == [5, None, None]


def test_the_slot_of_a_sequence_that_has_ended_is_free(graphs: FakeGraphs) -> None:
    executor, rows = executor_of(graphs), [sequence(random_ids(n, seed=n)) for n in (5, 7)]
    prefill(executor, *rows)
    rows[0].finish = LIMIT
    executor.retire()
    assert rows[1].kv.slot == 0
    assert best(executor.run(Decode((), (rows[1],)), demand)[rows[1]]) == digest_of(rows[1].ids)


def test_without_a_budget_anything_fits(graphs: FakeGraphs) -> None:
    assert executor_of(graphs).fits(1000, 1000)
    limited = BatchExecutor(fake_runner(graphs), 8, kv_budget=executor_of(graphs).bytes_for(2, 100))
    assert limited.fits(2, 100)
    assert not limited.fits(2, 101)
