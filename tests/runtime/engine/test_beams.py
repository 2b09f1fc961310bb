"""Beams through the engine, over a fake model whose every text goes on in its own way."""

import math
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgegen.constraint import Choice, Regex
from edgegen.engine.beam_group import BeamGroup
from edgegen.engine.beam_search import BeamSearch
from edgegen.engine.engine import Engine
from edgegen.engine.finish import OUT_OF_TIME
from edgegen.engine.sequence import Sequence, SequenceParams, Update
from edgegen.errors import LogitsError
from edgegen.generation.cancellation import CancelToken
from edgegen.generation.results import GenerationResult
from edgegen.llm import LLM
from edgegen.sampling import Candidates, LogitsContext, LogitsPipeline, LogitsSettings
from edgegen.sampling.sampler import Sampler
from edgegen.system import Deadline
from tests.runtime.engine.beam_reference import Answers, LogProbs, transformers_beam_search
from tests.runtime.models import EOS, VOCAB_SIZE, RandomGraphs, fake_llm, fake_runner, random_ids

PROMPT = random_ids(21)


@pytest.fixture
def graphs() -> RandomGraphs:
    return RandomGraphs(seed=3)


@pytest.fixture
def llm(graphs: RandomGraphs, tmp_path: Path) -> LLM:
    return fake_llm(tmp_path / "fake", graphs)


def model_of(graphs: RandomGraphs, prompt: list[int], only: bytes | None = None) -> LogProbs:
    """Its log-probabilities after a prompt; minus infinity for all but the bytes ``only``."""

    def log_probs(ids: tuple[int, ...]) -> NDArray[np.float32]:
        logits = graphs.logits([*prompt, *ids]).astype(np.float64)
        found = logits - np.log(np.exp(logits).sum())
        if only is not None:
            found[but(only)] = -np.inf
        return found.astype(np.float32)

    return log_probs


def but(only: bytes) -> list[int]:
    """All tokens but these bytes."""
    return sorted({*range(VOCAB_SIZE)} - {*only})


def assert_same(result: GenerationResult, expected: Answers) -> None:
    assert [choice.token_ids for choice in result.choices] == [ids for ids, _ in expected]
    found = [choice.score for choice in result.choices if choice.score is not None]
    np.testing.assert_allclose(found, [score for _, score in expected], rtol=1e-4)


@settings(deadline=None, max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    seed=st.integers(0, 2**32),
    prompt=st.lists(st.integers(0, 255), min_size=1, max_size=25),
    beams=st.integers(2, 6),
    new=st.integers(1, 20),
    eos=st.lists(st.integers(0, VOCAB_SIZE - 1), max_size=40, unique=True),
)
def test_each_beam_has_the_keys_and_values_of_its_own_text(
    tmp_path_factory: pytest.TempPathFactory,
    seed: int,
    prompt: list[int],
    beams: int,
    new: int,
    eos: list[int],
) -> None:
    graphs = RandomGraphs(seed)
    llm = fake_llm(tmp_path_factory.mktemp("fake") / "fake", graphs)
    expected = transformers_beam_search(
        model_of(graphs, prompt), beams, new, lambda ids: ids[-1] in eos, num_eos=len(eos)
    )
    for _ in range(2):
        result = llm.generate(
            prompt,
            num_beams=beams,
            num_return_sequences=beams,
            max_new_tokens=new,
            eos_token_id=eos,
        )
        assert_same(result, expected)


REMEMBERING: tuple[dict[str, Any], ...] = (
    {"repetition_penalty": 1.5},
    {"frequency_penalty": 1.5, "presence_penalty": 0.5},
    {"no_repeat_ngram_size": 1},
    {"dry_multiplier": 2.0, "dry_allowed_length": 1},
    {"sequence_bias": {(97, 98): 4.0}, "bad_words_ids": [[98, 99]]},
    {"exponential_decay_length_penalty": (2, 1.4), "min_new_tokens": 4},
)


@pytest.mark.parametrize("settings", REMEMBERING, ids=str)
def test_what_processors_remember_of_one_text_is_not_taken_for_another(
    llm: LLM, graphs: RandomGraphs, settings: dict[str, Any]
) -> None:
    """A row goes on with the text of whichever beam was better; the expectation makes new processors every time."""
    letters, model = list(b"abcdefghijklmnop"), model_of(graphs, PROMPT)
    common: dict[str, Any] = {"suppress_tokens": sorted({*range(VOCAB_SIZE)} - {*letters}), **settings}

    def log_probs(ids: tuple[int, ...]) -> NDArray[np.float32]:
        pipeline = LogitsPipeline.from_settings(LogitsSettings(**common), do_sample=False, eos_token_ids=[97])
        context = LogitsContext([*PROMPT, *ids], len(PROMPT))
        return pipeline(Candidates(model(ids)), context).logits

    expected = transformers_beam_search(log_probs, 4, 12, lambda ids: ids[-1] == 97, num_eos=1)
    options: dict[str, Any] = {"num_beams": 4, "num_return_sequences": 4, "max_new_tokens": 12, "eos_token_id": 97}
    assert_same(llm.generate(PROMPT, **options, **common), expected)


def test_the_prompt_is_computed_once_and_each_step_is_one_run(llm: LLM, graphs: RandomGraphs) -> None:
    llm.generate(PROMPT, num_beams=4, max_new_tokens=6)
    assert graphs.runs == [("prefill", 8), ("prefill", 8), ("prefill", 5), *[("decode", 1)] * 5]


def test_beside_other_requests_nothing_changes(llm: LLM) -> None:
    options: list[dict[str, Any]] = [
        {"num_beams": 3, "num_return_sequences": 2},
        {},
        {"num_beams": 5},
        {"seed": 4, "num_return_sequences": 3},
    ]
    alone = [llm.generate(PROMPT, max_new_tokens=12, **one) for one in options]
    streams = [llm.stream(PROMPT, max_new_tokens=12, **one) for one in options]
    for result, stream in zip(alone, reversed([stream.wait() for stream in reversed(streams)]), strict=True):
        assert [c.token_ids for c in stream.choices] == [c.token_ids for c in result.choices]


def test_a_stream_gives_each_answer_at_once_when_the_search_is_over(llm: LLM) -> None:
    with llm.stream(PROMPT, num_beams=4, num_return_sequences=3, max_new_tokens=5) as stream:
        chunks = list(stream)
    assert [chunk.index for chunk in chunks] == [0, 1, 2]
    assert [chunk.token_ids for chunk in chunks] == [choice.token_ids for choice in stream.result.choices]
    assert [chunk.text for chunk in chunks] == [choice.text for choice in stream.result.choices]
    assert {chunk.finish_reason for chunk in chunks} == {"length"}
    scores = [choice.score or 0 for choice in stream.result.choices]
    assert scores == sorted(scores, reverse=True)


def test_what_ends_at_the_context_says_so(graphs: RandomGraphs, tmp_path: Path) -> None:
    llm = fake_llm(tmp_path / "short", graphs, max_context=32)
    result = llm.generate(random_ids(25), num_beams=3, max_new_tokens=1000)
    assert len(result.token_ids) == 8
    assert (result.finish_reason, result.stopped_by) == ("length", "context")
    assert_same(result, transformers_beam_search(model_of(graphs, random_ids(25)), 3, 8)[:1])


class TestStopStrings:
    ONLY = b"abcdefghijkl"
    STOPS = ("ab", "cd", "ef", "gh")

    def ends(self, ids: tuple[int, ...]) -> bool:
        return any(stop.encode() in bytes(ids) for stop in self.STOPS)

    @pytest.mark.parametrize("seed", [0, 1, 2, 3, 5])
    def test_end_a_beam_as_an_end_of_sequence_id_does(self, tmp_path: Path, seed: int) -> None:
        graphs = RandomGraphs(seed)
        expected = transformers_beam_search(model_of(graphs, PROMPT, self.ONLY), 3, 20, self.ends, length_penalty=0.0)
        result = fake_llm(tmp_path / "fake", graphs).generate(
            PROMPT,
            num_beams=3,
            num_return_sequences=3,
            max_new_tokens=20,
            length_penalty=0.0,
            stop_strings=self.STOPS,
            suppress_tokens=but(self.ONLY),
        )
        assert_same(result, expected)
        for choice in result.choices:
            whole = bytes(choice.token_ids).decode()
            if choice.finish_reason == "stop":
                assert choice.matched in self.STOPS
                assert choice.text + choice.matched == whole
            else:
                assert (choice.text, self.ends(choice.token_ids)) == (whole, False)
        assert any(choice.finish_reason == "stop" for choice in result.choices)


class TestGrammars:
    @pytest.mark.parametrize("seed", range(8))
    @pytest.mark.parametrize("beams", [2, 5])
    def test_hold_for_every_answer(self, tmp_path: Path, seed: int, beams: int) -> None:
        llm = fake_llm(tmp_path / "fake", RandomGraphs(seed))
        result = llm.generate(
            PROMPT,
            num_beams=beams,
            num_return_sequences=beams,
            grammar=Regex("(a|bb){2,4}|[xyz]{1,3}"),
            eos_token_id=EOS,
            max_new_tokens=12,
        )
        texts = [choice.text for choice in result.choices]
        assert len(set(texts)) == beams
        for choice in result.choices:
            assert choice.finish_reason == "stop"
            assert re.fullmatch("(a|bb){2,4}|[xyz]{1,3}", choice.text)

    @pytest.mark.parametrize("beams", [2, 3, 8])
    def test_of_choices_the_likeliest_come_first_and_there_are_no_more(
        self, llm: LLM, graphs: RandomGraphs, beams: int
    ) -> None:
        words = ["yes", "no", "maybe", "never"]
        model = model_of(graphs, PROMPT)
        scores = {
            word: sum(float(model(tuple(word.encode()[:at]))[byte]) for at, byte in enumerate(word.encode()))
            / len(word)
            for word in words
        }
        result = llm.generate(
            PROMPT, num_beams=beams, num_return_sequences=beams, grammar=Choice.of(words), early_stopping="never"
        )
        there = [choice for choice in result.choices if choice.score is not None]
        for choice in there:
            assert choice.finish_reason == "stop"
            assert choice.score == pytest.approx(scores[choice.text], rel=1e-4)
        rest = result.choices[len(there) :]
        assert {(choice.text, choice.token_ids, choice.finish_reason) for choice in rest} <= {("", (), "length")}
        if beams == 8:
            assert [choice.text for choice in there] == sorted(words, key=lambda word: -scores[word])

    def test_that_no_beam_can_keep_to_are_an_error(self, llm: LLM) -> None:
        with pytest.raises(LogitsError, match="at token 2 of the answer, no token is left"):
            llm.generate(PROMPT, num_beams=3, grammar=Choice.of(["ab"]), suppress_tokens=[*b"b"])
        assert llm.generate(PROMPT, num_beams=3, grammar=Choice.of(["ab"])).text == "ab"

    def test_a_dead_end_of_one_beam_is_not_the_others(self, llm: LLM) -> None:
        result = llm.generate(
            PROMPT,
            num_beams=3,
            num_return_sequences=3,
            grammar=Choice.of(["aab", "aac", "ddd"]),
            suppress_tokens=[*b"bc"],
        )
        assert [choice.text for choice in result.choices] == ["ddd"]


class TestMasks:
    def test_that_leave_fewer_continuations_than_beams_leave_fewer_answers(self, llm: LLM) -> None:
        result = llm.generate(PROMPT, num_beams=4, num_return_sequences=4, max_new_tokens=1, suppress_tokens=but(b"ab"))
        assert sorted(choice.text for choice in result.choices) == ["a", "b"]

    def test_that_leave_nothing_are_an_error_that_names_the_step(self, llm: LLM) -> None:
        with pytest.raises(LogitsError, match="at token 3 of the answer, no token is left"):
            llm.generate([1], num_beams=3, suppress_tokens=but(b"ab"), no_repeat_ngram_size=1, max_new_tokens=5)
        kept = llm.generate([1], num_beams=3, suppress_tokens=but(b"ab"), no_repeat_ngram_size=1, max_new_tokens=2)
        assert kept.text in ("ab", "ba")

    def test_no_number_in_one_beam_is_an_error_that_names_the_step(self, tmp_path: Path) -> None:
        class Broken(RandomGraphs):
            def logits(self, ids: list[int]) -> NDArray[np.float32]:
                logits = super().logits(ids)
                if len(ids) == len(PROMPT) + 3 and ids[-1] % 2:
                    logits[7] = np.nan
                return logits

        llm = fake_llm(tmp_path / "broken", Broken())
        with pytest.raises(LogitsError, match="at token 4 of the answer, the model's logits are NaN or infinite"):
            llm.generate(PROMPT, num_beams=8)
        assert len(llm.generate(PROMPT, num_beams=8, max_new_tokens=3).token_ids) == 3


class TestEndsFromOutside:
    def test_a_cancelled_search_has_no_answer_and_the_model_goes_on(self, llm: LLM, graphs: RandomGraphs) -> None:
        expected = llm.generate(PROMPT, num_beams=3, max_new_tokens=9)
        token = CancelToken()
        graphs.after_run = lambda: token.cancel() if len(graphs.runs) == at else None
        for steps in (1, 3, 4, 7):
            at, token = len(graphs.runs) + steps, CancelToken()
            cut = llm.generate(PROMPT, num_beams=3, num_return_sequences=2, max_new_tokens=9, cancel=token)
            assert [(c.token_ids, c.finish_reason, c.score) for c in cut.choices] == [((), "cancelled", None)] * 2
            assert llm.generate(PROMPT, num_beams=3, max_new_tokens=9).token_ids == expected.token_ids

    def test_a_failing_run_fails_the_search_alone(self, llm: LLM, graphs: RandomGraphs) -> None:
        expected = llm.generate(PROMPT, max_new_tokens=5).token_ids

        def fail_with_beams() -> None:
            if graphs.rows >= 3:
                raise RuntimeError("the graph failed")

        graphs.before_run = fail_with_beams
        beams, other = llm.stream(PROMPT, num_beams=3), llm.stream(PROMPT, max_new_tokens=5)
        with pytest.raises(RuntimeError, match="the graph failed"):
            beams.wait()
        assert other.wait().token_ids == expected

    @pytest.mark.parametrize("steps", [1, 4, 9])
    @pytest.mark.parametrize("when", ["between two steps", "within a step"])
    def test_a_search_out_of_time_gives_the_best_so_far(self, graphs: RandomGraphs, steps: int, when: str) -> None:
        engine = Engine(fake_runner(graphs), prefill_chunk=32)
        updates: list[Update] = []
        rows = sharing(lambda: row(PROMPT), 3)
        rows[0].params = replace(rows[0].params, deadline=Deadline(math.inf))  # a later deadline would not be seen
        group = BeamGroup(rows, BeamSearch(3, 50, lambda ids: False), 2, updates.append)
        engine.add(group)
        for _ in range(steps):
            engine.step()
        assert updates == []
        if when == "within a step":
            graphs.after_run = lambda: late(rows)
            steps += 1
        else:
            late(rows)
        engine.step()
        expected = transformers_beam_search(model_of(graphs, PROMPT), 3, steps)
        assert [update.new_ids for update in updates] == [ids for ids, _ in expected[:2]]
        assert [choice.finish for choice in group.choices] == [OUT_OF_TIME] * 2
        assert [choice.score for choice in group.choices] == pytest.approx([s for _, s in expected[:2]], rel=1e-4)
        assert group.finished
        assert engine.step() == []

    def test_a_search_out_of_time_before_its_first_step_is_empty(self, graphs: RandomGraphs) -> None:
        engine = Engine(fake_runner(graphs), prefill_chunk=4)
        rows = sharing(lambda: row(PROMPT), 3)
        group = BeamGroup(rows, BeamSearch(3, 50, lambda ids: False), 2)
        late(rows)
        engine.add(group)
        assert [update.new_ids for update in engine.step()] == [(), ()]
        assert [choice.finish for choice in group.choices] == [OUT_OF_TIME] * 2
        assert graphs.runs == []


def row(prompt: list[int]) -> Sequence:
    sampler = Sampler(seed=0, do_sample=False)
    return Sequence(list(prompt), SequenceParams(len(prompt), 50, LogitsPipeline(), sampler, lambda ids: None))


def sharing(make: Callable[[], Sequence], count: int) -> list[Sequence]:
    rows = [make() for _ in range(count)]
    for one in rows[1:]:
        one.prefill_source = rows[0]
    return rows


def late(rows: list[Sequence]) -> None:
    for one in rows:
        one.params = replace(one.params, deadline=Deadline.after(0))
