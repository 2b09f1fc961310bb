"""Scheduler: chunks of a prompt, and who runs when."""

from collections.abc import Sequence as Ids
from dataclasses import dataclass
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgegen.logits import LogitsPipeline
from edgegen.sampler import Sampler
from edgegen.scheduler import Decode, Prefill, Scheduler, chunk_end
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
    """Nor is a single token left over by the blocks of 64 that the attention operator takes."""
    cut = chunks(length, size)
    assert sum(cut) == length
    assert not [chunk for chunk in cut if chunk % 64 == 1] or cut == [1]
    assert max(cut) <= max(size, 3)


@pytest.mark.parametrize(
    ("length", "expected"),
    [(1, [1]), (4, [4]), (5, [3, 2]), (6, [4, 2]), (8, [4, 4]), (9, [4, 3, 2]), (10, [4, 4, 2])],
)
def test_two_are_left_rather_than_one(length: int, expected: list[int]) -> None:
    assert chunks(length, 4) == expected


@pytest.mark.parametrize(
    ("length", "size", "expected"),
    [
        (3, 2, [3]),
        (65, 128, [63, 2]),
        (129, 128, [127, 2]),
        (193, 128, [128, 63, 2]),
        (65, 64, [63, 2]),
        (66, 65, [64, 2]),
    ],
)
def test_blocks_of_queries_leave_no_single_one(length: int, size: int, expected: list[int]) -> None:
    assert chunks(length, size) == expected


def run(scheduler: Scheduler) -> list[Prefill | Decode]:
    """Do as an engine would, without computing anything; every step."""
    done: list[Prefill | Decode] = []
    while (work := scheduler.schedule()) is not None:
        done.append(work)
        if isinstance(work, Prefill):
            work.row.cached = work.stop
            ready = [one for one in work.group if one is work.row or one.shares is work.row]
            for one in ready if work.row.prefilled else ():
                one.cached = work.stop
                one.append(0)
        else:
            for one in work.rows:
                one.cached += 1 + len(work.proposal)
                for token_id in (*work.proposal, 0):
                    one.append(token_id)
        assert len(done) < 1000
    return done


def test_first_in_is_first_out() -> None:
    scheduler = Scheduler(prefill_chunk=4, longest_proposal=16)
    sequences = [sequence(10, 2), sequence(1, 1), sequence(3, 4)]
    for one in sequences:
        scheduler.add(SequenceGroup([one]))
    order = [work.rows[0] for work in run(scheduler)]
    assert order == [sequences[0]] * 4 + [sequences[1]] + [sequences[2]] * 4


def test_a_step_is_one_chunk_of_one_row_or_one_token_of_every_row() -> None:
    scheduler = Scheduler(prefill_chunk=4, longest_proposal=16)
    first, second = sequence(6, 3), sequence(2, 2)
    group = SequenceGroup([first, second])
    scheduler.add(group)
    assert run(scheduler) == [
        Prefill(group, first, stop=4),
        Prefill(group, first, stop=6),
        Prefill(group, second, stop=2),
        Decode(group, (first, second)),
        Decode(group, (first,)),
    ]


def test_a_shared_prompt_is_computed_once() -> None:
    scheduler = Scheduler(prefill_chunk=4, longest_proposal=16)
    rows = [sequence(6, 2) for _ in range(3)]
    for row in rows[1:]:
        row.shares = rows[0]
    group = SequenceGroup(rows)
    scheduler.add(group)
    assert run(scheduler) == [Prefill(group, rows[0], 4), Prefill(group, rows[0], 6), Decode(group, tuple(rows))]


def test_rows_whose_first_is_cancelled_amid_the_prompt_compute_it_themselves() -> None:
    scheduler = Scheduler(prefill_chunk=4, longest_proposal=16)
    first, second = sequence(6, 2), sequence(6, 2)
    second.shares = first
    group = SequenceGroup([first, second])
    scheduler.add(group)
    assert scheduler.schedule() == Prefill(group, first, 4)
    first.cached = 4
    first.cancel()
    assert run(scheduler) == [Prefill(group, second, 4), Prefill(group, second, 6), Decode(group, (second,))]


@dataclass
class Oracle:
    """Proposes as many tokens as it is told to."""

    count: int
    certain: bool

    def propose(self, token_ids: Ids[int]) -> Ids[int]:
        return [7] * self.count

    def verified(self, proposed: int, accepted: int) -> None:
        pass


@pytest.mark.parametrize(("count", "new", "expected"), [(3, 20, 3), (40, 90, 16), (40, 9, 7), (3, 2, 0), (0, 20, 0)])
def test_what_is_proposed_fits_the_limit_and_what_is_left_of_the_answer(count: int, new: int, expected: int) -> None:
    one = sequence(5, new)
    one.proposers = (Oracle(count, certain=False),)
    one.append(0)
    assert one.propose(16, alone=True) == (7,) * expected


def test_guesses_are_for_a_row_alone_and_what_is_certain_for_any() -> None:
    scheduler = Scheduler(prefill_chunk=8, longest_proposal=16)
    guessing, sure = sequence(5, 9), sequence(5, 9)
    guessing.proposers, sure.proposers = (Oracle(2, certain=False),), (Oracle(3, certain=True),)
    group = SequenceGroup([guessing, sure])
    scheduler.add(group)
    steps = run(scheduler)[2:]
    # Whoever is certain goes first, with 1 + 3 tokens a step; a guess is made once nobody is beside it.
    assert steps[:2] == [Decode(group, (sure,), (7, 7, 7))] * 2
    assert steps[2:4] == [Decode(group, (guessing,), (7, 7))] * 2


def test_what_is_cancelled_is_passed_over() -> None:
    scheduler = Scheduler(prefill_chunk=4, longest_proposal=16)
    groups = [SequenceGroup([sequence(2)]) for _ in range(4)]
    for group in groups:
        scheduler.add(group)
    groups[0].cancel()
    groups[1].cancel()
    work = scheduler.schedule()
    assert isinstance(work, Prefill)
    assert work.row is groups[2].sequences[0]
    groups[2].cancel()
    groups[3].cancel()
    assert scheduler.schedule() is None


def test_there_is_no_work_without_requests() -> None:
    assert Scheduler(prefill_chunk=4, longest_proposal=16).schedule() is None
