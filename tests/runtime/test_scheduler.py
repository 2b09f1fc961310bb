"""Scheduler: chunks of a prompt, and who runs when."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgegen.logits import LogitsPipeline
from edgegen.sampler import Sampler
from edgegen.scheduler import Scheduler, Work, chunk_end
from edgegen.sequence import Sequence, SequenceGroup


def sequence(prompt: int, new: int = 5) -> Sequence:
    return Sequence(
        list(range(prompt)), prompt, new, LogitsPipeline(), Sampler(seed=0, do_sample=False), lambda ids: None
    )


def chunks(length: int, size: int) -> list[int]:
    ends = [0]
    while ends[-1] < length:
        ends.append(chunk_end(ends[-1], length, size))
    return [end - start for start, end in pairwise(ends)]


@given(length=st.integers(1, 3000), size=st.integers(2, 600))
def test_a_chunk_of_one_token_is_a_prompt_of_one_token(length: int, size: int) -> None:
    cut = chunks(length, size)
    assert sum(cut) == length
    assert 1 not in cut or cut == [1]
    assert all(chunk == size for chunk in cut[:-1])
    assert cut[-1] <= size + 1


@pytest.mark.parametrize(
    ("length", "expected"), [(1, [1]), (4, [4]), (5, [5]), (6, [4, 2]), (8, [4, 4]), (9, [4, 5]), (10, [4, 4, 2])]
)
def test_the_last_chunk_takes_a_leftover_of_one(length: int, expected: list[int]) -> None:
    assert chunks(length, 4) == expected


def run(scheduler: Scheduler) -> list[Work]:
    """Do as an engine would, without computing anything; every step."""
    done: list[Work] = []
    while (work := scheduler.schedule()) is not None:
        done.append(work)
        if work.prefill is not None:
            work.prefill.cached = work.stop
            if work.prefill.prefilled:
                work.prefill.append(0)
        for one in work.decode:
            one.cached += 1
            one.append(0)
        assert len(done) < 1000
    return done


def test_first_in_is_first_out() -> None:
    scheduler = Scheduler(prefill_chunk=4)
    sequences = [sequence(10, 2), sequence(1, 1), sequence(3, 4)]
    for one in sequences:
        scheduler.add(SequenceGroup([one]))
    order = [work.sequences[0] for work in run(scheduler)]
    assert order == [sequences[0]] * 4 + [sequences[1]] + [sequences[2]] * 4


def test_a_step_is_one_chunk_of_one_row_or_one_token_of_every_row() -> None:
    scheduler = Scheduler(prefill_chunk=4)
    first, second = sequence(6, 3), sequence(2, 2)
    scheduler.add(SequenceGroup([first, second]))
    assert run(scheduler) == [
        Work(prefill=first, stop=4),
        Work(prefill=first, stop=6),
        Work(prefill=second, stop=2),
        Work(decode=(first, second)),
        Work(decode=(first,)),
    ]


def test_what_is_cancelled_is_passed_over() -> None:
    scheduler = Scheduler(prefill_chunk=4)
    groups = [SequenceGroup([sequence(2)]) for _ in range(4)]
    for group in groups:
        scheduler.add(group)
    groups[0].cancel()
    groups[1].cancel()
    work = scheduler.schedule()
    assert work is not None
    assert work.prefill is groups[2].sequences[0]
    groups[2].cancel()
    groups[3].cancel()
    assert scheduler.schedule() is None


def test_there_is_no_work_without_requests() -> None:
    assert Scheduler(prefill_chunk=4).schedule() is None
