"""Scheduler: chunks of a prompt, and who runs when."""

from collections.abc import Sequence as Ids
from dataclasses import dataclass
from itertools import pairwise
from weakref import ref

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgegen.engine.chunked_prefill import chunk_end
from edgegen.engine.scheduler import Decode, Fits, Prefill, Scheduler, Step, Verify
from edgegen.engine.sequence import Sequence, SequenceGroup, SequenceParams
from edgegen.sampling import LogitsPipeline
from edgegen.sampling.sampler import Sampler


def sequence(prompt: int, new: int = 5) -> Sequence:
    greedy = Sampler(seed=0, do_sample=False)
    return Sequence(list(range(prompt)), SequenceParams(prompt, new, LogitsPipeline(), greedy, lambda ids: None))


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


CHUNK = 4


def scheduler_of(
    most_sequences: int = 8, fits: Fits = lambda rows, length: True, longest_in_batch: int = 0
) -> Scheduler:
    return Scheduler(16, most_sequences, fits, longest_in_batch=longest_in_batch)


def group_of(*rows: Sequence, priority: int = 0) -> SequenceGroup:
    group = SequenceGroup(rows)
    group.priority = priority
    return group


def follow(step: Step) -> None:
    """Do as an engine would, without computing anything."""
    for row in step.decode.sequences if step.decode else ():
        row.kv.cached += 1
        row.append(0)
    match step.multi_token:
        case Verify(sequence=row, proposal=proposal):
            row.kv.cached += 1 + len(proposal)
            for token_id in (*proposal, 0):
                row.append(token_id)
        case Prefill(group=group, sequence=row):
            row.kv.cached = chunk_end(row.kv.cached, row.params.prompt_length, CHUNK)
            for one in [one for one in group if one is row or one.prefill_source is row] if row.prefilled else []:
                one.kv.cached = row.kv.cached
                one.append(0)
        case None:
            pass


def run(scheduler: Scheduler) -> list[Step]:
    """To the end; every step."""
    done = list[Step]()
    while (step := scheduler.schedule()) != Step():
        done.append(step)
        follow(step)
        assert len(done) < 1000
    assert scheduler.idle
    return done


def test_a_step_is_a_chunk_of_one_prompt_and_a_token_of_every_other_row() -> None:
    scheduler = scheduler_of()
    first, second, third = sequence(6, 4), sequence(2, 2), sequence(9, 2)
    groups = [group_of(first, second), group_of(third)]
    for group in groups:
        scheduler.add(group)
    assert run(scheduler) == [
        Step(None, Prefill(groups[0], first)),
        Step(None, Prefill(groups[0], first)),
        Step(None, Prefill(groups[0], second)),
        Step(Decode((groups[0],), (first, second)), Prefill(groups[1], third), is_awaited=True),
        Step(Decode((groups[0],), (first,)), Prefill(groups[1], third), is_awaited=True),
        Step(Decode((groups[0],), (first,)), Prefill(groups[1], third), is_awaited=True),
        Step(Decode((groups[1],), (third,))),
    ]


@given(
    requests=st.lists(st.tuples(st.integers(1, 20), st.integers(1, 12), st.integers(0, 9)), min_size=1, max_size=9),
    most_sequences=st.integers(1, 4),
)
def test_whoever_joins_a_row_past_its_prompt_runs_in_every_step(
    requests: list[tuple[int, int, int]], most_sequences: int
) -> None:
    """``requests``: length of the prompt, new tokens, and the step in which it arrives."""
    scheduler = scheduler_of(most_sequences)
    rows = [sequence(prompt, new) for prompt, new, _ in requests]
    for number in range(500):
        for row, (_, _, arrival) in zip(rows, requests, strict=True):
            if arrival == number:
                scheduler.add(group_of(row))
        decoding = {row for row in rows if row.kv.slot == 0 and row.prefilled and row.finish is None}
        step = scheduler.schedule()
        assert set(step.decode.sequences if step.decode else ()) == decoding
        assert scheduler.idle or scheduler.demand[0] <= most_sequences
        if step.multi_token:
            step.multi_token.sequence.kv.slot = 0  # it has begun
        follow(step)
    assert all(len(row.generated) == row.params.max_new_tokens for row in rows)


def started(steps: list[Step]) -> list[Sequence]:
    """Rows in the order in which their prompts were begun."""
    return list(dict.fromkeys(step.multi_token.sequence for step in steps if step.multi_token))


def test_first_in_is_first_out_and_nobody_overtakes() -> None:
    scheduler = scheduler_of(most_sequences=2)
    pair = [sequence(4, 3), sequence(4, 3)]
    singles = [sequence(4, 6), sequence(4, 2), sequence(4, 1)]
    scheduler.add(group_of(singles[0]))
    scheduler.add(group_of(*pair))
    scheduler.add(group_of(singles[1]))
    scheduler.add(group_of(singles[2]))
    assert started(run(scheduler)) == [singles[0], *pair, singles[1], singles[2]]


def test_a_group_of_more_rows_than_there_may_be_runs_beside_others_and_one_at_a_time() -> None:
    scheduler = scheduler_of(most_sequences=4)
    before, behind = sequence(4, 40), sequence(4, 1)
    many = [[sequence(4, 2) for _ in range(5)] for _ in range(2)]
    for group in (group_of(before), group_of(*many[0]), group_of(*many[1]), group_of(behind)):
        scheduler.add(group)
    steps = run(scheduler)
    assert started(steps)[0] == before
    assert behind in started(steps)[:4]
    assert [row for row in started(steps) if row not in (before, behind)] == [*many[0], *many[1]]
    assert max(len(step.decode.sequences) for step in steps if step.decode) == 6


def test_the_best_priority_goes_first_and_interrupts_a_prompt_that_has_begun() -> None:
    scheduler = scheduler_of()
    summary, later, chat = sequence(40, 2), sequence(4, 2), sequence(8, 2)
    scheduler.add(group_of(summary, priority=5))
    follow(scheduler.schedule())
    scheduler.add(group_of(later, priority=5))
    scheduler.add(group_of(chat, priority=-1))
    multi_token = [step.multi_token.sequence for step in run(scheduler) if step.multi_token]
    assert multi_token == [chat, chat, summary, later, *[summary] * 8]


def test_who_does_not_fit_the_memory_waits() -> None:
    scheduler = scheduler_of(fits=lambda rows, length: rows * length <= 30)
    small, long = [sequence(5, 6) for _ in range(2)], sequence(20, 5)
    scheduler.add(group_of(small[0]))
    scheduler.add(group_of(small[1]))
    scheduler.add(group_of(long))
    steps = run(scheduler)
    begun = next(n for n, step in enumerate(steps) if step.multi_token and step.multi_token.sequence is long)
    assert all(row.finish for row in small)
    assert not any(set(small) & set(step.decode.sequences) for step in steps[begun:] if step.decode)


def test_a_shared_prompt_is_computed_once() -> None:
    scheduler = scheduler_of()
    rows = [sequence(6, 2) for _ in range(3)]
    for row in rows[1:]:
        row.prefill_source = rows[0]
    group = group_of(*rows)
    scheduler.add(group)
    prefill = Step(None, Prefill(group, rows[0]))
    assert run(scheduler) == [prefill, prefill, Step(Decode((group,), tuple(rows)))]


def test_rows_whose_first_is_cancelled_amid_the_prompt_compute_it_themselves() -> None:
    scheduler = scheduler_of()
    first, second = sequence(6, 2), sequence(6, 2)
    second.prefill_source = first
    group = group_of(first, second)
    scheduler.add(group)
    assert scheduler.schedule().multi_token == Prefill(group, first)
    first.kv.cached = 4
    first.cancel()
    prefill = Step(None, Prefill(group, second))
    assert run(scheduler) == [prefill, prefill, Step(Decode((group,), (second,)))]


@dataclass
class Oracle:
    """Proposes as many tokens as it is told to."""

    count: int
    always_accepted: bool

    def propose(self, token_ids: Ids[int]) -> Ids[int]:
        return [7] * self.count

    def verified(self, proposed: int, accepted: int) -> None:
        pass


@pytest.mark.parametrize(("count", "new", "expected"), [(3, 20, 3), (40, 90, 16), (40, 9, 7), (3, 2, 0), (0, 20, 0)])
def test_what_is_proposed_fits_the_limit_and_what_is_left_of_the_answer(count: int, new: int, expected: int) -> None:
    one = sequence(5, new)
    one.proposers = (Oracle(count, always_accepted=False),)
    one.append(0)
    assert one.propose(16, alone=True) == (7,) * expected


def test_guesses_are_for_a_row_alone_and_what_is_certain_for_any() -> None:
    scheduler = scheduler_of()
    speculating, sure = sequence(3, 12), sequence(3, 9)
    speculating.proposers, sure.proposers = (Oracle(2, always_accepted=False),), (Oracle(3, always_accepted=True),)
    group = group_of(speculating, sure)
    scheduler.add(group)
    steps = run(scheduler)[2:]
    # What is always accepted runs 1 + 3 tokens a step beside the batch; other proposals only for a sequence alone.
    assert steps[:2] == [Step(Decode((group,), (speculating,)), Verify(group, sure, (7, 7, 7)))] * 2
    assert steps[2:4] == [Step(None, Verify(group, speculating, (7, 7)))] * 2


@dataclass
class BatchOracle(Oracle):
    """In a batch, too."""

    def propose_in_batch(self, token_ids: Ids[int], sequences: int) -> Ids[int]:
        return self.propose(token_ids)


def batch_of(*counts: int, longest: int = 4) -> tuple[Scheduler, list[Sequence]]:
    """Sequences past their prompts, one for each of ``counts``, the number of tokens it proposes."""
    scheduler, rows = scheduler_of(longest_in_batch=longest), [sequence(3, 30) for _ in counts]
    for row, count in zip(rows, counts, strict=True):
        row.proposers = (BatchOracle(count, always_accepted=False),)
        scheduler.add(group_of(row))
    while not all(row.prefilled for row in rows):
        follow(scheduler.schedule())
    return scheduler, rows


@pytest.mark.parametrize(
    ("counts", "lengths"),
    [
        ((2, 2), [2, 2]),
        ((9, 9), [4, 4]),
        ((4, 1), [4, 1]),
        ((2, 2, 2, 2), [2, 2, 2, 2]),
        ((4, 1, 1, 1), [1, 1, 1, 1]),
        ((4, 0, 0, 0), []),
        ((0, 0), []),
        ((1, 1, 1, 1, 1), []),
    ],
)
def test_proposals_of_a_batch_have_the_length_that_pays(counts: tuple[int, ...], lengths: list[int]) -> None:
    scheduler, rows = batch_of(*counts)
    step = scheduler.schedule()
    assert step.decode is not None
    assert step.multi_token is None
    assert step.decode.sequences == tuple(rows)
    assert [len(one) for one in step.decode.proposals] == lengths


def test_proposals_of_a_batch_are_within_the_limit_together() -> None:
    scheduler, _ = batch_of(9, 9, 9, longest=9)
    decode = scheduler.schedule().decode
    assert decode is not None
    assert [len(one) for one in decode.proposals] == [5, 5, 5]


def test_a_batch_proposes_nothing_beside_a_prompt_or_a_sequence_that_cannot() -> None:
    scheduler, rows = batch_of(2, 2)
    late = sequence(12, 5)
    scheduler.add(group_of(late))
    while not late.prefilled:
        step = scheduler.schedule()
        assert step.decode is not None
        assert not step.decode.proposals
        follow(step)
    step = scheduler.schedule()
    assert step.decode == Decode(step.decode.groups if step.decode else (), (*rows, late))
    late.cancel()
    step = scheduler.schedule()
    assert step.decode is not None
    assert step.decode.proposals


def test_where_a_batch_cannot_be_verified_nothing_is_proposed() -> None:
    scheduler, _ = batch_of(2, 2, longest=0)
    decode = scheduler.schedule().decode
    assert decode is not None
    assert decode.proposals == ()


def test_prompts_and_proposals_take_turns() -> None:
    scheduler = scheduler_of()
    sure = [sequence(3, 40), sequence(3, 40)]
    for row in sure:
        row.proposers = (Oracle(3, always_accepted=True),)
    late = sequence(12, 2)
    scheduler.add(group_of(*sure))
    for _ in range(4):
        follow(scheduler.schedule())
    scheduler.add(group_of(late))
    turns = [step.multi_token.sequence for step in run(scheduler)[:8] if step.multi_token]
    assert turns == [late, sure[0], late, sure[1], late, *sure, sure[0]]


def test_nobody_proposes_while_a_prompt_is_under_way() -> None:
    scheduler = scheduler_of()
    speculating, late = sequence(3, 30), sequence(12, 2)
    speculating.proposers = (Oracle(2, always_accepted=False),)
    scheduler.add(group_of(speculating))
    follow(scheduler.schedule())
    assert isinstance(scheduler.schedule().multi_token, Verify)
    scheduler.add(group_of(late))
    assert scheduler.schedule().decode is not None


def test_what_is_cancelled_is_passed_over() -> None:
    scheduler = scheduler_of(most_sequences=1)
    groups = [group_of(sequence(2)) for _ in range(4)]
    for group in groups:
        scheduler.add(group)
    groups[0].cancel()
    groups[1].cancel()
    assert scheduler.schedule().multi_token == Prefill(groups[2], groups[2].sequences[0])
    groups[2].cancel()
    groups[3].cancel()
    assert scheduler.schedule() == Step()
    assert scheduler.idle


def test_while_nobody_comes_or_goes_all_steps_are_one() -> None:
    """Every token of an answer would wait for a new one to be put together."""
    scheduler, (short, long) = scheduler_of(), (group_of(sequence(2, new=4)), group_of(sequence(2, new=9)))
    scheduler.add(short)
    scheduler.add(long)
    steps = run(scheduler)
    decodes = [step for step in steps if step.decode is not None]
    assert [len(step.decode.sequences) for step in decodes if step.decode] == [1, 2, 2, *[1] * 6]
    assert len({id(step) for step in decodes}) == 3


def test_what_has_ended_is_let_go() -> None:
    scheduler, group = scheduler_of(), group_of(sequence(2))
    scheduler.add(group)
    run(scheduler)
    gone = ref(group)
    del group
    assert gone() is None


def test_there_is_no_work_without_requests() -> None:
    assert scheduler_of().schedule() == Step()
    assert scheduler_of().idle
