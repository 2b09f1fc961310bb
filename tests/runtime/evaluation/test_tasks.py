"""Tests of models: their figures against sums over a fake model's logits, written out in NumPy."""

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgegen.errors import PromptTooLongError, UsageError
from edgegen.evaluation.items import Pair, Question
from edgegen.evaluation.tasks import PASSAGE, Evaluation, Figure, MinimalPairs, MultipleChoice, Reading
from edgegen.llm import LLM
from tests.runtime.models import EOS, RandomGraphs, fake_llm

TEXT = "Zoë asked: “Why?” Nobody knew, and so she asked again. " * 4
WORDS = "the cat sat on a mat and one saw it go off so we ran".split()
SENTENCES = [" ".join(np.random.default_rng(seed).permutation(WORDS)[:5]) for seed in range(80)]


def loaded(folder: Path, seed: int = 0, max_context: int = 512) -> LLM:
    return fake_llm(folder / f"fake-{seed}", RandomGraphs(seed), max_context=max_context)


@pytest.fixture
def llm(tmp_path: Path) -> LLM:
    return loaded(tmp_path)


def logprob(ids: list[int], begin: int, seed: int = 0) -> float:
    """Of the ids from ``begin`` on, by the chain rule."""
    total = 0.0
    for place in range(begin, len(ids)):
        logits = RandomGraphs(seed).logits(ids[:place]).astype(np.float64)
        total += logits[ids[place]] - np.log(np.exp(logits).sum())
    return total


def logprob_of(context: str, continuation: str) -> float:
    """Texts of the byte tokenizer, after the beginning-of-sequence token if there is no context."""
    ids = [*(context + continuation).encode()]
    return logprob(ids, len(context.encode())) if context else logprob([EOS, *ids], 1)


class TestReading:
    def test_perplexity_is_that_of_the_llm(self, tmp_path: Path) -> None:
        llm = loaded(tmp_path, max_context=64)
        figure, bits = Reading(TEXT).run(llm)
        expected = llm.perplexity(TEXT)
        assert figure.estimate.mean == pytest.approx(expected.perplexity, rel=1e-5)
        total = expected.nll_per_token * expected.tokens
        assert bits.estimate.mean == pytest.approx(total / math.log(2) / len(TEXT.encode()), rel=1e-5)

    def test_passages_are_the_items(self, llm: LLM) -> None:
        figure, bits = Reading(TEXT).run(llm)
        ids = [*TEXT.encode()]
        nlls = [-logprob(ids[: place + 1], place) for place in range(1, len(ids))]
        passages = [nlls[start : start + PASSAGE] for start in range(0, len(nlls), PASSAGE)]
        assert figure.values == pytest.approx([np.mean(passage) for passage in passages], abs=1e-4)
        assert figure.weights == bits.weights == tuple(map(len, passages))
        assert figure.estimate.count == len(passages) > 5
        # The error of e to a mean is the mean's, times the value: by trying, to first order.
        mean = math.log(figure.estimate.mean)
        step = bits.estimate.error / bits.estimate.mean * mean
        assert figure.estimate.error == pytest.approx(figure.estimate.mean * step)

    def test_a_text_of_one_token_is_told(self, llm: LLM) -> None:
        with pytest.raises(UsageError, match="the text is too short: it has 1 token"):
            Reading("a").run(llm)


class TestMultipleChoice:
    QUESTIONS = tuple(
        Question(context, (right, "a dog", "nobody at all, ever"), 0, line)
        for line, (context, right) in enumerate(pairwise(SENTENCES), 1)
    )

    def test_is_counted_as_lm_evaluation_harness_does(self, llm: LLM) -> None:
        plain, normed = MultipleChoice(self.QUESTIONS).run(llm)
        for question, acc, acc_norm in zip(self.QUESTIONS, plain.values, normed.values, strict=True):
            logprobs = np.array([logprob_of(question.context, f" {choice}") for choice in question.choices])
            lengths = [len(choice) for choice in question.choices]
            assert acc == (np.argmax(logprobs) == question.answer)
            assert acc_norm == (np.argmax(logprobs / lengths) == question.answer)
        assert (plain.name, normed.name) == ("acc", "acc_norm")
        assert plain.estimate.mean < normed.estimate.mean < 1  # the right ones are long, and so are less likely

    def test_white_space_of_a_choice_is_enough(self, llm: LLM) -> None:
        given = MultipleChoice([Question("one", (" two", "\nsix"), 0, 1)]).run(llm)[0].values[0]
        assert given == (logprob_of("one", " two") > logprob_of("one", "\nsix"))

    @given(answer=st.integers(0, 3), context=st.sampled_from(["", "a", "a b "]))
    def test_any_answer_behind_any_context(
        self, tmp_path_factory: pytest.TempPathFactory, answer: int, context: str
    ) -> None:
        llm = loaded(tmp_path_factory.mktemp("fake"))
        choices = ("red", "green and", "é", "blue blue")
        logprobs = [logprob_of(context, f" {choice}") for choice in choices]
        (found, _) = MultipleChoice([Question(context, choices, answer, 1)]).run(llm)
        assert found.values == (float(np.argmax(logprobs) == answer),)

    def test_one_that_does_not_fit_is_named(self, tmp_path: Path) -> None:
        questions = [Question("a", ("b", "c"), 0, 1), Question("a" * 60, ("b" * 9, "c"), 0, 7)]
        with pytest.raises(PromptTooLongError, match="line 7: the context and continuation 1 have 70 tokens together"):
            MultipleChoice(questions).run(loaded(tmp_path, max_context=64))


class TestMinimalPairs:
    def test_are_right_where_the_good_one_is_likelier(self, llm: LLM) -> None:
        pairs = [Pair(good, bad, 1) for good, bad in zip(SENTENCES, SENTENCES[40:], strict=False)]
        (figure,) = MinimalPairs(pairs).run(llm)
        expected = [logprob_of("", f" {pair.good}") > logprob_of("", f" {pair.bad}") for pair in pairs]
        assert figure.values == tuple(map(float, expected))
        assert 0 < figure.estimate.mean < 1

    def test_a_tie_is_not(self, llm: LLM) -> None:
        (figure,) = MinimalPairs([Pair("same", "same", 1)]).run(llm)
        assert figure.values == (0.0,)

    def test_a_model_that_cannot_begin_a_text_is_told_where(self, tmp_path: Path) -> None:
        llm = fake_llm(tmp_path / "fake", RandomGraphs(), config={})
        with pytest.raises(UsageError, match=r"line 3: (.*\n.*)?the context is empty, and this model has no token"):
            MinimalPairs([Pair("a", "b", 3)]).run(llm)


class TestComparison:
    @staticmethod
    def figure(values: list[float], *, higher_is_better: bool = True, exponential: bool = False) -> Figure:
        weights = (1.0,) * len(values)
        return Figure("x", tuple(values), weights, "items", higher_is_better, exponential)

    def test_is_made_item_by_item(self, tmp_path: Path) -> None:
        reading = Reading(TEXT)
        first, second = (reading.run(loaded(tmp_path, seed))[1] for seed in (0, 1))
        difference = second.compared_with(first)
        assert difference is not None
        differences = np.array(second.values) - np.array(first.values)
        mean = np.average(differences, weights=first.weights)
        assert difference.estimate.mean == pytest.approx(mean)
        assert difference.estimate.mean == pytest.approx(second.estimate.mean - first.estimate.mean)
        assert difference.verdict == "noise"

    @pytest.mark.parametrize("higher_is_better", [True, False])
    @pytest.mark.parametrize("exponential", [True, False])
    def test_what_is_hard_for_both_is_no_noise(self, higher_is_better: bool, exponential: bool) -> None:
        hardness, random = np.random.default_rng(0).normal(2, 1, 100), np.random.default_rng(1)
        shift = 0.02 + random.normal(0, 0.05, 100)

        def shifted(by: float) -> Figure:
            values = (hardness + by * shift).tolist()
            return self.figure(values, higher_is_better=higher_is_better, exponential=exponential)

        first, up, down = shifted(0), shifted(1), shifted(-1)
        better, worse = (up, down) if higher_is_better else (down, up)
        for other, verdict in ((better, "better"), (worse, "worse"), (first, "noise")):
            difference = other.compared_with(first)
            assert difference is not None
            assert difference.verdict == verdict
            assert difference.estimate.mean == pytest.approx(other.estimate.mean - first.estimate.mean)
            assert difference.estimate.error < first.estimate.error / 10 or verdict == "noise"

    def test_of_perplexities_has_the_error_that_trying_shows(self) -> None:
        random = np.random.default_rng(2)
        found, errors = list[float](), list[float]()
        for _ in range(300):
            hardness = random.normal(2, 0.5, 60)
            other = hardness + random.normal(0.03, 0.02, 60)
            first, second = (self.figure(values.tolist(), exponential=True) for values in (hardness, other))
            difference = second.compared_with(first)
            assert difference is not None
            found.append(difference.estimate.mean / second.estimate.mean)
            errors.append(difference.estimate.error / second.estimate.mean)
        assert np.mean(errors) == pytest.approx(np.std(found), rel=0.15)

    def test_needs_the_same_items(self, llm: LLM) -> None:
        one, other = (Reading(text).run(llm)[0] for text in (TEXT, TEXT.swapcase()))
        assert one.compared_with(other) is None


@pytest.mark.parametrize(
    "test",
    [
        Reading("One day she saw a dog."),
        MultipleChoice([Question("a", ("b", "c"), 0, 1)] * 3),
        MinimalPairs([Pair("a", "b", 1)] * 3),
    ],
    ids=lambda test: test.name,
)
def test_progress_ends_with_everything(llm: LLM, test: Evaluation) -> None:
    told = list[tuple[int, int]]()
    test.run(llm, lambda done, total: told.append((done, total)))
    assert told == sorted(told)
    assert told[-1][0] == told[-1][1] >= 3
