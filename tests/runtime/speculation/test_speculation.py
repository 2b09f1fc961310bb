"""Proposals change how many runs an answer takes, and nothing else."""

from collections.abc import Callable
from collections.abc import Sequence as Ids
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from edgegen.bundle.bundle import Bundle
from edgegen.constraint import Regex
from edgegen.engine.engine import Engine
from edgegen.engine.finish import CANCELLED, OUT_OF_TIME, StopMatch
from edgegen.engine.sequence import Sequence, SequenceGroup, SequenceParams, Update
from edgegen.errors import ConstraintError, LogitsError
from edgegen.generation.prompt_encoder import PromptEncoder
from edgegen.generation.request import Request
from edgegen.generation.request_builder import RequestBuilder
from edgegen.model.loading import open_runner
from edgegen.options.engine import EngineOptions
from edgegen.options.generation import GenerationOptions
from edgegen.sampling import Candidates, LogitsContext, LogitsPipeline
from edgegen.sampling.sampler import Sampler
from edgegen.speculation.ngram_proposer import NGramProposer
from edgegen.speculation.proposer import Proposer
from edgegen.speculation.stats import Speculation
from edgegen.system import Deadline
from edgegen.tokenizer import Tokenizer
from tests.runtime.models import (
    EOS,
    VOCAB_SIZE,
    FailAt,
    FakeGraphs,
    RandomGraphs,
    byte_tokenizer,
    fake_runner,
    random_ids,
)

PROMPT = random_ids(21)


@dataclass
class Script:
    """Proposes what ``say`` says of a text."""

    say: Callable[[list[int]], Ids[int]]
    always_accepted: bool = False
    asked: int = 0
    told: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])

    def propose(self, token_ids: Ids[int]) -> Ids[int]:
        self.asked += 1
        return self.say(list(token_ids))

    def verified(self, proposed: int, accepted: int) -> None:
        self.told.append((proposed, accepted))


@dataclass
class Watched:
    """A watch that ends a sequence at some ids, and keeps what it was shown."""

    ends: frozenset[int] = frozenset()
    seen: list[int] = field(default_factory=list[int])

    def watch(self, ids: Ids[int]) -> StopMatch | None:
        self.seen += ids
        return StopMatch("stop", ids[-1], "eos_token_id") if ids[-1] in self.ends else None


def row(proposer: Proposer | None, new: int = 20, *, seed: int = 5, ends: Ids[int] = ()) -> Sequence:
    """Tokens drawn, so that each position's own random number matters."""
    sampler, watch = Sampler(seed=seed, do_sample=True), Watched(frozenset(ends)).watch
    params = SequenceParams(len(PROMPT), new, LogitsPipeline(), sampler, watch)
    return Sequence(list(PROMPT), params, proposers=() if proposer is None else (proposer,))


def answer_of(graphs: RandomGraphs, count: int, seed: int = 5) -> list[int]:
    sampler, ids = Sampler(seed=seed, do_sample=True), list(PROMPT)
    for _ in range(count):
        ids.append(sampler.sample(Candidates(graphs.logits(ids)), len(ids)))
    return ids[len(PROMPT) :]


def engine_of(graphs: FakeGraphs) -> Engine:
    return Engine(fake_runner(graphs), prefill_chunk=8)


def run(engine: Engine, *groups: SequenceGroup) -> list[Update]:
    """To the end; all updates."""
    updates = list[Update]()
    for group in groups:
        engine.add(group)
    for _ in range(500):
        if all(group.finished for group in groups):
            return updates
        updates += engine.step()
    raise AssertionError("the engine does not come to an end")


def right(answer: list[int], most: int) -> Callable[[list[int]], list[int]]:
    return lambda ids: answer[len(ids) - len(PROMPT) :][:most]


@settings(deadline=None, max_examples=80)
@given(
    seed=st.integers(0, 1000),
    new=st.integers(1, 40),
    lengths=st.lists(st.integers(0, 25), min_size=1, max_size=9),
    truths=st.lists(st.integers(0, 25), min_size=1, max_size=9),
    always_accepted=st.booleans(),
    ends=st.lists(st.integers(0, 255), max_size=20),
)
def test_whatever_is_proposed_the_ids_are_the_same(
    seed: int, new: int, lengths: list[int], truths: list[int], always_accepted: bool, ends: list[int]
) -> None:
    """At each length of the text another number of proposed tokens, of which another number of the first are right."""
    graphs = RandomGraphs(seed)
    answer = answer_of(graphs, new)
    stop = next((at + 1 for at, token in enumerate(answer) if token in ends), new)

    def propose(ids: list[int]) -> list[int]:
        at = len(ids) - len(PROMPT)
        count, truth = lengths[at % len(lengths)], truths[at % len(truths)]
        return [token if k < truth else (token + 1) % 256 for k, token in enumerate((answer[at:] + [0] * 30)[:count])]

    one = row(Script(propose, always_accepted), new, ends=ends)
    updates = run(engine_of(graphs), SequenceGroup([one]))
    assert one.generated == answer[:stop]
    assert [token for update in updates for token in update.new_ids] == answer[:stop]
    assert one.finish is not None
    assert one.finish.reason == ("stop" if answer[stop - 1] in ends else "length")
    assert sum(phase == "decode" for phase, _ in graphs.runs) <= stop - 1


def test_what_is_right_saves_runs_and_what_is_wrong_costs_none() -> None:
    graphs = RandomGraphs()
    answer = answer_of(graphs, 21)
    run(engine_of(graphs), SequenceGroup([row(Script(right(answer, 4)), 21)]))
    assert graphs.runs[3:] == [("decode", 5)] * 4
    graphs.runs.clear()
    run(engine_of(graphs), SequenceGroup([row(Script(lambda ids: [7] * 4), 21)]))
    assert graphs.runs[3:] == [*[("decode", 5)] * 16, ("decode", 4), ("decode", 3), ("decode", 2), ("decode", 1)]


def test_who_proposed_is_told_what_came_of_it() -> None:
    graphs = RandomGraphs()
    answer = answer_of(graphs, 20)

    def propose(ids: list[int]) -> list[int]:
        at = len(ids) - len(PROMPT)
        return {1: [*answer[1:4], 256, 256], 5: [], 6: [256], 7: answer[7:9]}.get(at, [])

    proposer, silent = Script(propose), Script(lambda ids: [])
    one = row(None)
    one.proposers = (silent, proposer)
    run(engine_of(graphs), SequenceGroup([one]))
    assert one.generated == answer
    assert proposer.told == [(5, 3), (1, 0), (2, 2)]
    assert silent.told == []
    assert one.speculation == Speculation(runs=3, proposed=8, accepted=5)


def test_an_end_inside_a_proposal_accepts_up_to_there() -> None:
    graphs = RandomGraphs()
    answer = answer_of(graphs, 20)
    end = next(at for at in range(2, 20) if answer[at] not in answer[:at])
    proposer = Script(right(answer, 19))
    one = row(proposer, ends=[answer[end]])
    run(engine_of(graphs), SequenceGroup([one]))
    assert sum(accepted for _, accepted in proposer.told) >= end - len(proposer.told)
    assert one.speculation.accepted == sum(accepted for _, accepted in proposer.told) <= end


class BatchScript(Script):
    """In a batch, too."""

    def propose_in_batch(self, token_ids: Ids[int], sequences: int) -> Ids[int]:
        return self.propose(token_ids)


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 1000),
    news=st.lists(st.tuples(st.integers(1, 40), st.integers(0, 12)), min_size=2, max_size=5),
    lengths=st.lists(st.integers(0, 6), min_size=1, max_size=9),
    truths=st.lists(st.integers(0, 6), min_size=1, max_size=9),
    ends=st.lists(st.integers(0, 255), max_size=10),
)
def test_sequences_of_a_batch_are_as_alone(
    seed: int,
    news: list[tuple[int, int]],
    lengths: list[int],
    truths: list[int],
    ends: list[int],
) -> None:
    """Each has its own seed and length, and joins after some steps; they end when they do."""
    graphs = RandomGraphs(seed)
    graphs.attends_batches, graphs.order = True, "fixed"
    engine, rows, expected = engine_of(graphs), list[Sequence](), list[list[int]]()
    for number, (new, _) in enumerate(news):
        answer = answer_of(graphs, new, seed=number)
        stop = next((at + 1 for at, token in enumerate(answer) if token in ends), new)
        expected.append(answer[:stop])

        def propose(ids: list[int], answer: list[int] = answer, number: int = number) -> list[int]:
            at = len(ids) - len(PROMPT)
            count, truth = lengths[(at + number) % len(lengths)], truths[at % len(truths)]
            return [one if k < truth else (one + 1) % 256 for k, one in enumerate((answer[at:] + [0] * 9)[:count])]

        rows.append(row(BatchScript(propose), new, seed=number, ends=ends))
    waiting, steps = [(joins, SequenceGroup([one])) for (_, joins), one in zip(news, rows, strict=True)], 0
    while waiting or not engine.idle:
        for joins, group in [pair for pair in waiting if pair[0] <= steps]:
            engine.add(group)
            waiting.remove((joins, group))
        engine.step()
        steps += 1
        assert steps < 500
    assert [one.generated for one in rows] == expected
    assert [one.error for one in rows] == [None] * len(rows)


def test_a_batch_verifies_in_one_run_and_where_it_fails_each_goes_on_alone() -> None:
    def fail() -> None:
        if graphs.rows == 2 and not failed:
            failed.append(True)
            raise RuntimeError("broken")

    graphs, failed = RandomGraphs(), list[bool]()
    graphs.attends_batches, graphs.order = True, "fixed"
    answers = [answer_of(graphs, 25, seed=seed) for seed in (0, 1)]
    rows = [row(BatchScript(right(answer, 4)), 25, seed=seed) for seed, answer in enumerate(answers)]
    engine = engine_of(graphs)
    run(engine, *(SequenceGroup([one]) for one in rows))
    assert [one.generated for one in rows] == answers
    assert all(one.speculation.accepted == one.speculation.proposed >= 16 for one in rows)
    assert sum(one.speculation.runs for one in rows) > len(graphs.runs) - 2 * 3  # those of the prompts
    graphs.after_run = fail
    rows = [row(BatchScript(right(answer, 4)), 25, seed=seed) for seed, answer in enumerate(answers)]
    run(engine, *(SequenceGroup([one]) for one in rows))
    assert failed
    assert [one.generated for one in rows] == answers


def test_what_is_certain_comes_before_guesses_and_guesses_only_alone() -> None:
    sure, proposal = Script(lambda ids: [1] if len(ids) % 2 else [], always_accepted=True), Script(lambda ids: [2, 2])
    one = row(None)
    one.proposers = (sure, proposal)
    one.ids = PROMPT[:20]
    assert one.propose(8, alone=True) == (2, 2)
    assert one.asked is proposal
    assert one.propose(8, alone=False) == ()
    one.ids = PROMPT[:21]
    assert one.propose(8, alone=True) == one.propose(8, alone=False) == (1,)
    assert one.asked is sure


@settings(deadline=None, max_examples=50)
@given(
    seed=st.integers(0, 1000),
    period=st.integers(1, 30),
    slips=st.sets(st.integers(0, 59), max_size=8),
    longest=st.integers(1, 20),
)
def test_with_lookup_the_ids_are_the_same_and_repetition_is_sooner(
    seed: int, period: int, slips: set[int], longest: int
) -> None:
    """A text that goes round, but for some slips."""
    cycle = random_ids(period, seed)
    text = [cycle[at % period] if at not in slips else (seed + at) % 256 for at in range(60)]
    graphs = FakeGraphs(lambda ids: text[len(ids) - len(PROMPT)])
    one = row(NGramProposer(longest, 4), 60)
    run(engine_of(graphs), SequenceGroup([one]))
    assert one.generated == text
    if period < 10 and not slips and longest > 3:
        assert sum(phase == "decode" for phase, _ in graphs.runs) < 35


def test_a_proposal_is_cut_to_what_is_left_and_to_the_longest() -> None:
    graphs = RandomGraphs()
    answer = answer_of(graphs, 40)
    one = row(Script(right(answer, 1000)), 40)
    run(engine_of(graphs), SequenceGroup([one]))
    assert one.generated == answer
    # The prompt gives the first, a run of 1 + 8 the next nine: proposals are no longer than a chunk.
    assert graphs.runs[3:] == [("decode", 9)] * 4 + [("decode", 3)]


@pytest.mark.parametrize("error", [ConstraintError("of the grammar"), LogitsError("of a processor")], ids=repr)
def test_a_proposer_that_does_not_know_is_not_asked_for_the_reason(error: Exception) -> None:
    graphs = RandomGraphs()

    def propose(ids: list[int]) -> list[int]:
        raise error

    one = row(Script(propose), 9)
    run(engine_of(graphs), SequenceGroup([one]))
    assert one.generated == answer_of(graphs, 9)


@pytest.mark.parametrize("error", [RuntimeError("a bug"), BaseException("a library's panic")], ids=repr)
def test_a_proposer_that_breaks_down_fails_its_own_request(error: BaseException) -> None:
    graphs, updates = RandomGraphs(), list[Update]()
    proposer = Script(right(answer_of(graphs, 9), 2), always_accepted=True)
    proposer.say = lambda ids: FailAt(1, error)() if len(ids) > len(PROMPT) + 3 else []  # type: ignore[return-value]
    failing, other = row(proposer, 9), row(None, 9)
    run(engine_of(graphs), SequenceGroup([failing], updates.append), SequenceGroup([other]))
    assert failing.error is error
    assert failing.generated == answer_of(graphs, 4)
    assert [update.new_ids for update in updates] == [(token,) for token in answer_of(graphs, 4)] + [()]
    assert (other.error, other.generated) == (None, answer_of(graphs, 9))


def test_a_processor_that_fails_inside_a_proposal_fails_at_its_own_token() -> None:
    graphs = RandomGraphs()
    answer = answer_of(graphs, 9)

    def fail(candidates: Candidates, context: LogitsContext) -> Candidates:
        if len(context.token_ids) == len(PROMPT) + 4:
            raise LogitsError("no token is left")
        return candidates

    one, updates = row(Script(right(answer, 8)), 9), list[Update]()
    one.params = replace(one.params, pipeline=LogitsPipeline([fail]))
    run(engine_of(graphs), SequenceGroup([one], updates.append))
    assert str(one.error) == "at token 5 of the answer, no token is left"
    assert one.generated == answer[:4]
    # What came before the failure is told, as without a proposal.
    assert [token for update in updates for token in update.new_ids] == answer[:4]


def test_one_that_is_stateful_is_never_verified() -> None:
    class Stateful:
        stateful = True

        def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
            return candidates

    graphs, proposer = RandomGraphs(), Script(lambda ids: [1, 2], always_accepted=True)
    one = row(proposer, 9)
    one.params = replace(one.params, pipeline=LogitsPipeline([Stateful()]))
    run(engine_of(graphs), SequenceGroup([one]))
    assert proposer.asked == 0
    assert one.generated == answer_of(graphs, 9)


def test_guesses_wait_until_a_row_is_alone_and_what_is_certain_does_not() -> None:
    graphs = RandomGraphs()
    answers = [answer_of(graphs, 12, seed) for seed in (5, 6)]
    short, long = row(None, 4, seed=5), row(Script(right(answers[1], 3)), 12, seed=6)
    run(engine_of(graphs), SequenceGroup([short, long]))
    assert (short.generated, long.generated) == (answers[0][:4], answers[1])
    assert [tokens for _, tokens in graphs.runs[6:]] == [1, 1, 1, 4, 4]
    graphs.runs.clear()
    both = [
        row(Script(right(answer, 3), always_accepted=True), 12, seed=seed)
        for seed, answer in zip((5, 6), answers, strict=True)
    ]
    run(engine_of(graphs), SequenceGroup(both))
    assert [one.generated for one in both] == answers
    assert {tokens for _, tokens in graphs.runs[6:-1]} <= {3, 4}


@pytest.mark.parametrize("end", ["cancelled", "time"])
def test_an_end_from_outside_comes_at_its_token(end: str) -> None:
    graphs = RandomGraphs()
    answer = answer_of(graphs, 20)
    one, shown = row(Script(right(answer, 8)), 20), list[int]()

    def watch(ids: Ids[int]) -> None:
        shown.extend(ids)
        if len(shown) == 6:
            if end == "cancelled":
                one.cancel()
            else:
                one.params = replace(one.params, deadline=Deadline.after(0))

    one.params = replace(one.params, watch=watch)
    run(engine_of(graphs), SequenceGroup([one]))
    assert one.finish == (CANCELLED if end == "cancelled" else OUT_OF_TIME)
    assert one.generated == answer[:6]


def test_a_proposed_token_outside_the_vocabulary_fails_the_request_alone() -> None:
    graphs = RandomGraphs()
    one, other = row(Script(lambda ids: [VOCAB_SIZE]), 5), row(None, 5)
    run(engine_of(graphs), SequenceGroup([one]), SequenceGroup([other]))
    assert other.generated == answer_of(graphs, 5)
    assert one.generated == answer_of(graphs, 5)  # the fake has a row for any id; a real one fails


class TestForcedTokens:
    GRAMMAR = Regex("(yes|no), that is what I (say|said)!{3}[0-9]{2}")

    def request(self, tokenizer: Path, vocabulary: int, **options: Any) -> Request:
        builder = RequestBuilder(PromptEncoder(Tokenizer.from_file(tokenizer), vocabulary, EOS), 512, ())
        return builder.build("Zoë", GenerationOptions(grammar=self.GRAMMAR, max_new_tokens=60, **options))

    @pytest.mark.parametrize("options", [{}, {"seed": 3}, {"seed": 4, "num_return_sequences": 3}], ids=str)
    def test_take_fewer_runs_for_the_same_ids(self, fp32_bundle: Bundle, options: dict[str, Any]) -> None:
        found: list[list[tuple[tuple[int, ...], str]]] = []
        runs: list[int] = []
        for forced in (True, False):
            file, size = fp32_bundle.file("tokenizer.json"), fp32_bundle.manifest.model.vocab_size
            request = self.request(file, size, **options)
            for one in request.group if not forced else ():
                one.proposers = ()
            engine = Engine(open_runner(fp32_bundle, EngineOptions(threads=1)), prefill_chunk=32)
            engine.add(request.group)
            steps = 0
            while not request.finished:
                engine.step()
                steps += 1
            found.append([(choice.token_ids, choice.text) for choice in request.result().choices])
            runs.append(steps)
        assert found[0] == found[1]
        assert runs[0] * 2 < runs[1]

    def test_have_the_logprobs_they_would_have_one_by_one(self, tmp_path: Path) -> None:
        found: list[Any] = []
        for forced in (True, False):
            request = self.request(byte_tokenizer(tmp_path / "tokenizer.json"), VOCAB_SIZE, seed=3, top_logprobs=2)
            for one in request.group if not forced else ():
                one.proposers = ()
            graphs = RandomGraphs(1)
            engine = engine_of(graphs)
            engine.add(request.group)
            while not request.finished:
                engine.step()
            found.append((request.result().token_ids, request.result().logprobs))
        assert found[0] == found[1]
        assert len(found[0][0]) == len(found[0][1]) > 20
        assert np.isfinite([entry.logprob for entry in found[0][1]]).all()
