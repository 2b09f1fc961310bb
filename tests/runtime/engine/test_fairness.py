"""Clients take turns: none waits for another's whole prompt, or for all prompts of another; counted in steps."""

from collections.abc import Sequence as Ids
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegen.engine.admission import MOST_OVERTAKING
from edgegen.engine.engine import Engine
from edgegen.engine.scheduler import Prefill, Scheduler, Step, Verify
from edgegen.engine.sequence import Client, Sequence, SequenceGroup, SequenceParams
from edgegen.sampling import LogitsPipeline
from edgegen.sampling.sampler import Sampler
from tests.runtime.models import FakeGraphs, digest_of, fake_runner, random_ids

CHUNK = 16
MOST = 4
"""Sequences of the batch."""
SOON = 5
"""Steps until the first token of a prompt of one chunk: the step under way, and turns of others, are among them."""


def sequence(prompt: list[int], new: int = 5) -> Sequence:
    sampler = Sampler(seed=0, do_sample=False)
    return Sequence(list(prompt), SequenceParams(len(prompt), new, LogitsPipeline(), sampler, lambda ids: None))


def expected(one: Sequence) -> list[int]:
    """Its answer if it were alone."""
    ids = one.ids[: one.params.prompt_length]
    for _ in range(one.params.max_new_tokens):
        ids.append(digest_of(ids))
    return ids[one.params.prompt_length :]


def group_of(*rows: Sequence, client: Client | None = None, priority: int = 0) -> SequenceGroup:
    group = SequenceGroup(rows)
    for row in rows[1:]:
        if row.ids == rows[0].ids:
            row.prefill_source = rows[0]
    group.client, group.priority = client or group.client, priority
    return group


def engine_of(*, most: int = MOST, budget: int | None = None, prefixes: int | None = 0) -> Engine:
    runner = fake_runner(FakeGraphs(digest_of))
    return Engine(runner, CHUNK, max_batch_size=most, kv_budget=budget, prefix_budget=prefixes)


def steps_to(engine: Engine, *rows: Sequence, most: int = 2000) -> int:
    """Steps until each of ``rows`` has a token."""
    for count in range(most):
        if all(row.generated for row in rows):
            return count
        engine.step()
    raise AssertionError(f"no token after {most} steps")


def finish(engine: Engine, most: int = 5000) -> int:
    for count in range(most):
        if engine.idle:
            return count
        engine.step()
    raise AssertionError(f"not idle after {most} steps")


def test_a_short_prompt_does_not_wait_for_a_long_one() -> None:
    engine, long, short = engine_of(), sequence(random_ids(1600)), sequence(random_ids(12))
    engine.add(group_of(long))
    for _ in range(3):
        engine.step()
    engine.add(group_of(short))
    assert steps_to(engine, short) <= SOON
    assert long.kv.cached < 10 * CHUNK
    # Beside the other's decode the long one is read on: it takes no more steps than chunks, and the other's turn.
    assert steps_to(engine, long) <= 1600 / CHUNK + 1
    finish(engine)
    assert [long.generated, short.generated] == [expected(long), expected(short)]


def test_a_short_prompt_does_not_wait_for_many_long_ones() -> None:
    engine, longs = engine_of(most=12), [sequence(random_ids(800, seed=n)) for n in range(11)]
    for long in longs:
        engine.add(group_of(long))
    for _ in range(7):
        engine.step()
    short = sequence(random_ids(12))
    engine.add(group_of(short))
    assert steps_to(engine, short) <= SOON


def test_a_long_prompt_is_read_on_however_many_short_ones_come() -> None:
    engine, long = engine_of(most=MOST), sequence(random_ids(40 * CHUNK))
    engine.add(group_of(long))
    shorts = list[Sequence]()
    for step in range(1, 400):
        shorts.append(sequence(random_ids(12, seed=step), 1))
        engine.add(group_of(shorts[-1]))
        engine.step()
        assert long.kv.cached >= (step // 4) * CHUNK or long.prefilled
        if long.prefilled:
            break
    assert long.prefilled
    finish(engine)
    assert long.generated == expected(long)
    assert all(short.generated == expected(short) for short in shorts)


@pytest.mark.parametrize("answers", [1, 3, 3 * MOST])
def test_one_request_of_many_prompts_does_not_stop_others(answers: int) -> None:
    """Whether its answers fit the batch or not."""
    engine, client = engine_of(), Client()
    prompts = [random_ids(3 + n, seed=n) for n in range(12)]
    many = [group_of(*(sequence(prompt, 30) for _ in range(answers)), client=client) for prompt in prompts]
    for group in many:
        engine.add(group)
    for _ in range(5):
        engine.step()
    shorts = [sequence(random_ids(9, seed=n), 20) for n in range(MOST - 1)]
    for short in shorts:  # all of them beside each other
        engine.add(group_of(short))
        assert steps_to(engine, short) <= SOON
    late = sequence(random_ids(8), 2)
    engine.add(group_of(late))
    assert steps_to(engine, late) <= 20 + SOON  # as many clients as may run do: it waits for the first that ends
    finish(engine)
    assert all(one.generated == expected(one) for one in (*shorts, late))
    assert all(one.generated == expected(one) for group in many for one in group)


def test_two_requests_of_many_prompts_come_to_have_half_of_the_batch() -> None:
    engine, clients = engine_of(most=8), [Client(), Client()]
    groups = [[group_of(sequence([n, k], 10 + n % 3), client=one) for n in range(60)] for k, one in enumerate(clients)]
    for group in groups[0]:
        engine.add(group)
    for _ in range(20):
        engine.step()
    for group in groups[1]:
        engine.add(group)
    for _ in range(60):
        engine.step()
    running = [sum(bool(group.sequences[0].generated) and not group.finished for group in own) for own in groups]
    assert abs(running[0] - running[1]) <= 2
    assert 7 <= sum(running) <= 8
    finish(engine)


def test_a_request_alone_fills_the_batch() -> None:
    scheduler, client = Scheduler(16, MOST), Client()
    for n in range(9):
        scheduler.add(group_of(sequence([n, 1], 9), client=client))
    scheduler.schedule()
    assert scheduler.demand[0] == MOST


def test_requests_of_several_answers_begin_beside_each_other_to_twice_the_batch() -> None:
    scheduler, sizes = Scheduler(16, MOST), (3 * MOST, MOST, MOST, MOST, 1)
    rows = [[sequence([n, 1], 9) for _ in range(size)] for n, size in enumerate(sizes)]
    for some in rows:
        scheduler.add(group_of(*some))
    scheduler.schedule()
    assert scheduler.demand[0] == 3 * MOST + 2 * MOST + 1
    for row in rows[0]:
        row.cancel()
    scheduler.schedule()
    assert scheduler.demand[0] == 2 * MOST + 1
    for row in rows[1]:
        row.cancel()
    scheduler.schedule()
    assert scheduler.demand[0] == 2 * MOST + 1 - MOST  # with the one alone, four more would be beyond it


def test_a_batch_of_one_sequence_has_one() -> None:
    scheduler = Scheduler(16, 1)
    for n in range(4):
        scheduler.add(group_of(sequence([n, 1], 9)))
    scheduler.schedule()
    assert scheduler.demand[0] == 1


def test_what_waits_for_memory_is_overtaken_a_number_of_times_and_no_more() -> None:
    """There is room for 100 positions of all sequences together."""
    scheduler = Scheduler(16, 8, lambda count, length: count * length <= 100)
    held, large = sequence([1] * 40, 9), sequence([2] * 60, 9)
    scheduler.add(group_of(held))
    scheduler.schedule()
    scheduler.add(group_of(large))
    begun = 0
    for n in range(3 * MOST_OVERTAKING):
        small = sequence([3, n], 2)
        scheduler.add(group_of(small))
        if small not in prefilled(scheduler):
            break
        begun += 1
        small.cancel()
    assert begun == MOST_OVERTAKING
    held.cancel()
    assert large in prefilled(scheduler)


@pytest.mark.parametrize("lists", [1, 2, 6])
def test_what_waits_for_memory_waits_for_one_request_of_each_client(lists: int) -> None:
    """Lists of prompts, all sent before it, fill the 100 positions that there are."""
    engine = engine_of(budget=fake_runner(FakeGraphs(digest_of)).new_cache(None).bytes_for(10, 10))
    clients = [Client() for _ in range(lists)]
    for n in range(40):
        for k, client in enumerate(clients):
            engine.add(group_of(*(sequence([1 + k, n, 1], 4) for _ in range(MOST)), client=client))
    for _ in range(5):
        engine.step()
    late = sequence([5] * 9, 12)
    engine.add(group_of(late))
    assert steps_to(engine, late) <= 12 * (1 + lists)
    assert late.generated[0] == expected(late)[0]


@pytest.mark.parametrize("lists", [2, 6])
def test_lists_take_turns_to_begin_with_whoever_comes_later(lists: int) -> None:
    """There is room for two of their requests at once, and all of them came before."""
    engine, clients = engine_of(), [Client() for _ in range(lists)]
    for n in range(40):
        for k, client in enumerate(clients):
            engine.add(group_of(*(sequence([1 + k, n, 1], 4) for _ in range(MOST)), client=client))
    for _ in range(5):
        engine.step()
    late = [sequence([7, 7, n], 4) for n in range(MOST)]
    engine.add(group_of(*late))
    assert steps_to(engine, *late) <= 12 * (1 + lists)


def prefilled(scheduler: Scheduler) -> list[Sequence]:
    """The sequences that some step of ten begins to read."""
    found = list[Sequence]()
    for _ in range(10):
        if (work := scheduler.schedule().multi_token) is not None:
            found.append(work.sequence)
    return found


def test_a_worse_priority_does_not_overtake_what_waits_for_memory() -> None:
    scheduler = Scheduler(16, 8, lambda count, length: count * length <= 100)
    held, large, small = sequence([1] * 40, 9), sequence([2] * 60, 9), sequence([3, 4], 2)
    scheduler.add(group_of(held))
    scheduler.schedule()
    scheduler.add(group_of(large))
    scheduler.add(group_of(small, priority=1))
    assert small not in prefilled(scheduler)


def test_a_worse_priority_does_not_begin_before_a_request_that_waits_for_a_place() -> None:
    scheduler = Scheduler(16, MOST)
    held, large, worse = (
        [sequence([n, 1], 9) for n in range(3 * MOST)],
        [sequence([5], 9) for _ in range(2 * MOST)],
        sequence([7], 2),
    )
    scheduler.add(group_of(*held))
    scheduler.add(group_of(*large))
    scheduler.add(group_of(worse, priority=1))
    scheduler.schedule()
    assert scheduler.demand[0] == 3 * MOST


def test_prompts_that_begin_alike_are_read_once() -> None:
    """A client with the same prefix waits for it, and meanwhile lends its turns."""
    engine, system = engine_of(prefixes=None), random_ids(400)
    first, second, other = (
        sequence([*system, *random_ids(30, seed=1)]),
        sequence([*system, *random_ids(5, seed=2)]),
        sequence(random_ids(150, seed=3)),
    )
    engine.add(group_of(first))
    for _ in range(5):
        engine.step()
    for late in (second, other):
        engine.add(group_of(late))
    finish(engine)
    assert second.kv.reused == 400
    assert first.kv.reused == other.kv.reused == 0
    assert all(one.generated == expected(one) for one in (first, second, other))


def test_a_prompt_whose_beginning_is_cancelled_is_read_by_itself() -> None:
    engine, system = engine_of(prefixes=None), random_ids(400)
    first, second = sequence([*system, 1, 2, 3]), sequence([*system, 4, 5, 6])
    groups = [group_of(first), group_of(second)]
    for group in groups:
        engine.add(group)
    for _ in range(5):
        engine.step()
    assert second.kv.cached == 0
    engine.cancel(groups[0])
    finish(engine)
    assert second.generated == expected(second)


@dataclass
class Sure:
    """Proposes three tokens whenever it is asked, and is right: sequences wait for their turns with several tokens."""

    always_accepted: bool = True

    def propose(self, token_ids: Ids[int]) -> Ids[int]:
        return [7, 7, 7]

    def verified(self, proposed: int, accepted: int) -> None:
        pass


def follow(step: Step) -> None:
    """Do as an engine would, without computing anything."""
    for row in step.decode.sequences if step.decode else ():
        row.kv.cached += 1
        row.append(0)
    if isinstance(step.multi_token, Verify):
        row = step.multi_token.sequence
        row.kv.cached += 1 + len(step.multi_token.proposal)
        for token_id in (*step.multi_token.proposal, 0):
            row.append(token_id)
    elif step.multi_token is not None:
        row = step.multi_token.sequence
        row.kv.cached = min(row.params.prompt_length, row.kv.cached + CHUNK)
        for one in step.multi_token.group if row.prefilled else ():
            if one is row or one.prefill_source is row:
                one.kv.cached = row.kv.cached
                one.append(0)


def test_proposals_of_many_answers_do_not_stop_a_prompt_or_another_stream() -> None:
    scheduler = Scheduler(16, MOST)
    many, stream, short = [sequence([1, 2], 400) for _ in range(20)], sequence([3, 4], 60), sequence([5, 6], 4)
    for row in (*many, stream):
        row.proposers = (Sure(),)
    scheduler.add(group_of(*many))
    for _ in range(3):
        follow(scheduler.schedule())
    scheduler.add(group_of(stream))
    scheduler.add(group_of(short))
    for _ in range(SOON):
        follow(scheduler.schedule())
    assert stream.generated
    assert short.generated
    before = len(stream.generated)
    for _ in range(20):
        follow(scheduler.schedule())
    assert len(stream.generated) >= before + 20


@dataclass
class Asked:
    """A request of a drawn schedule."""

    client: int
    prompt: int
    new: int
    answers: int
    arrival: int
    rows: list[Sequence] = field(default_factory=list[Sequence])


asked = st.builds(
    Asked,
    client=st.integers(0, 3),
    prompt=st.integers(1, 90),
    new=st.integers(1, 9),
    answers=st.sampled_from([1, 1, 2, 7]),
    arrival=st.integers(0, 60),
)


@settings(deadline=None, max_examples=60)
@given(
    requests=st.lists(asked, min_size=1, max_size=10),
    most=st.integers(1, 5),
    sequences=st.sampled_from([None, 7, 12]),
    prefixes=st.sampled_from([0, None]),
    shared=st.integers(0, 60),
)
def test_whoever_comes_gets_its_own_answer_within_a_bound(
    requests: list[Asked], most: int, sequences: int | None, prefixes: int | None, shared: int
) -> None:
    """``sequences``: of 100 positions each, that fit in memory; ``shared``: ids that all prompts begin with."""
    runner = fake_runner(FakeGraphs(digest_of))
    budget = None if sequences is None else runner.new_cache(None).bytes_for(sequences, 100)
    engine = Engine(runner, CHUNK, max_batch_size=most, kv_budget=budget, prefix_budget=prefixes)
    clients = [Client() for _ in range(4)]
    for number, one in enumerate(requests):
        ids = [*random_ids(shared), *random_ids(one.prompt, seed=number + 1)][: one.prompt]
        one.rows = [sequence(ids, one.new) for _ in range(one.answers)]
    # All that comes, one request after the other: turns change the order of this work, and add none.
    bound = 60 + sum(one.prompt // CHUNK + 2 + one.new for one in requests)
    for step in range(bound + 1):
        for one in requests:
            if one.arrival == step:
                engine.add(group_of(*one.rows, client=clients[one.client]))
        engine.step()
    assert engine.idle
    for one in requests:
        for row in one.rows:
            assert row.generated == expected(row)


@settings(deadline=None, max_examples=60)
@given(requests=st.lists(asked, min_size=1, max_size=12), most=st.integers(1, 6))
def test_no_client_with_a_prompt_is_passed_over_for_long(requests: list[Asked], most: int) -> None:
    scheduler, clients = Scheduler(16, most), [Client() for _ in range(4)]
    for one in requests:
        one.rows = [sequence([0] * one.prompt, one.new) for _ in range(one.answers)]
        one.rows[0].proposers = (Sure(),)
    passed, groups = dict[Client, int](), list[SequenceGroup]()
    for number in range(1000):
        for one in requests:
            if one.arrival == number:
                groups.append(group_of(*one.rows, client=clients[one.client]))
                scheduler.add(groups[-1])
        step = scheduler.schedule()
        if number > 60 and step == Step():
            break
        begun = {group.client for group in groups if any(row.kv.cached for row in group.prompts)}
        passed = {client: 1 + passed.get(client, 0) for client in begun}
        if isinstance(step.multi_token, Prefill):
            passed[step.multi_token.group.client] = 0
        # Every second turn may be a proposal's, every fourth of the others is for the client that waits longest.
        assert max(passed.values(), default=0) <= 2 * 4 * len(clients)
        follow(step)
    assert all(group.finished for group in groups)
