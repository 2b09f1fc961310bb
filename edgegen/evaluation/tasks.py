"""Evaluation tasks: perplexity of a text, multiple choice, minimal pairs.

A test gives figures. A figure keeps a value for each item, so that two models are compared item by item: how hard an
item is drops out of the difference, and little is left to chance.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from edgegen.errors import PromptTooLongError, UsageError
from edgegen.evaluation.items import Pair, Question
from edgegen.evaluation.mean_estimate import Estimate
from edgegen.llm import LLM
from edgegen.scoring.perplexity import LARGEST_WINDOW, windows
from edgegen.scoring.scores import Score, perplexity_of

PASSAGE = 32
"""Tokens of a text that are one item. Single tokens are not: what surprises in one word surprises in the next."""

Progress = Callable[[int, int], object]
"""Told how much is done, and of how much."""

Verdict = Literal["better", "worse", "noise"]


@dataclass(frozen=True, slots=True)
class Difference:
    """By how much a figure is above another model's, on the same items; ``verdict``: whether that is good."""

    estimate: Estimate
    verdict: Verdict


@dataclass(frozen=True, slots=True)
class Figure:
    """One thing that a test says of a model.

    Attributes:
        values: of each item.
        weights: how much each item counts.
        items: what the items are; only figures of the same ones can be compared.
        higher_is_better: or lower is.
        exponential: whether the figure is e to the mean of the values, as perplexity is, and not the mean.
    """

    name: str
    values: tuple[float, ...]
    weights: tuple[float, ...]
    items: Any
    higher_is_better: bool = True
    exponential: bool = False

    @property
    def estimate(self) -> Estimate:
        mean = Estimate.of(self.values, self.weights)
        if not self.exponential:
            return mean
        value = perplexity_of(mean.mean, 1)
        return Estimate(value, value * mean.error, mean.count)  # to first order

    def compared_with(self, first: "Figure") -> Difference | None:
        """The difference, with the error of the items' differences; None where the items are others."""
        if self.items != first.items:
            return None
        pairs = zip(self.values, first.values, strict=True)
        mean = Estimate.of([mine - its for mine, its in pairs], self.weights)
        verdict = "noise"
        if mean.beyond_noise:
            verdict = "better" if (mean.mean > 0) == self.higher_is_better else "worse"
        if not self.exponential:
            return Difference(mean, verdict)
        mine, its = self.estimate.mean, first.estimate.mean
        return Difference(Estimate(mine - its, mine * mean.error, mean.count), verdict)


class Evaluation(Protocol):
    """A test that any model can be put to."""

    name: str

    def run(self, llm: LLM, on_progress: Progress | None = None) -> list[Figure]:
        """Evaluate a model on this task.

        Raises:
            UsageError: what is tested does not fit the model.
            LogitsError: the model's logits are NaN or infinite.
        """
        ...


class Reading:
    """How well a model foresees a text.

    ``perplexity`` is that of :meth:`LLM.perplexity`. ``bits per byte`` is what each byte of the text would cost to
    store, given the model: it can be compared between models with different tokens.
    """

    name = "text"

    def __init__(self, text: str) -> None:
        self._text = text

    def run(self, llm: LLM, on_progress: Progress | None = None) -> list[Figure]:
        ids = tuple(llm.encode(self._text))
        if len(ids) < 2:
            raise UsageError("the text is too short: it has 1 token, and all but the first are scored.")
        nlls = _nlls(llm, ids, on_progress or _nobody)
        passages = [nlls[start : start + PASSAGE] for start in range(0, len(nlls), PASSAGE)]
        means = tuple(math.fsum(passage) / len(passage) for passage in passages)
        counts = tuple(float(len(passage)) for passage in passages)
        bits_per_nat = len(nlls) / len(self._text.encode()) / math.log(2)
        return [
            Figure("perplexity", means, counts, ids, higher_is_better=False, exponential=True),
            Figure("bits per byte", tuple(bits_per_nat * mean for mean in means), counts, ids, higher_is_better=False),
        ]


class MultipleChoice:
    """How often a model finds the right choice the likeliest, as lm-evaluation-harness counts it.

    A space comes between context and choice. ``acc`` compares the choices' log-probabilities, ``acc_norm`` those
    divided by the number of characters. Of equals, the first is taken.
    """

    name = "choices"

    def __init__(self, questions: Sequence[Question]) -> None:
        self._questions = tuple(questions)

    def run(self, llm: LLM, on_progress: Progress | None = None) -> list[Figure]:
        plain, normed = list[bool](), list[bool]()
        for question in self._questions:
            scores = _scores(llm, question.context, question.choices, question.line)
            lengths = [len(choice) for choice in question.choices]
            plain.append(_likeliest([score.logprob for score in scores]) == question.answer)
            per_character = [score.logprob / length for score, length in zip(scores, lengths, strict=True)]
            normed.append(_likeliest(per_character) == question.answer)
            (on_progress or _nobody)(len(plain), len(self._questions))
        return [_share("acc", plain, self._questions), _share("acc_norm", normed, self._questions)]


class MinimalPairs:
    """How often a model finds the good sentence of a pair likelier than the bad one, as on BLiMP (``acc``).

    Both are read after the model's beginning-of-sequence token and a space, as in lm-evaluation-harness.
    """

    name = "pairs"

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self._pairs = tuple(pairs)

    def run(self, llm: LLM, on_progress: Progress | None = None) -> list[Figure]:
        right = list[bool]()
        for pair in self._pairs:
            good, bad = _scores(llm, "", (pair.good, pair.bad), pair.line)
            right.append(good.logprob > bad.logprob)
            (on_progress or _nobody)(len(right), len(self._pairs))
        return [_share("acc", right, self._pairs)]


def _nlls(llm: LLM, ids: tuple[int, ...], on_progress: Progress) -> list[float]:
    """Of each token but the first, in the windows of :meth:`LLM.perplexity`, which keeps no single ones."""
    size, nlls = min(llm.max_context, LARGEST_WINDOW), list[float]()
    for window in windows(len(ids), size, size // 2):
        score = llm.score(ids[window.begin : window.scored_from], ids[window.scored_from : window.end])
        nlls += [-entry.logprob for entry in score.logprobs]
        on_progress(len(nlls), len(ids) - 1)
    return nlls


def _scores(llm: LLM, context: str, choices: Sequence[str], line: int) -> list[Score]:
    """Score each choice as a continuation of the context, with a space before it where it has none.

    Raises:
        UsageError: the model cannot score them; the line is told.
    """
    try:
        return llm.score(context, [choice if choice[0].isspace() else f" {choice}" for choice in choices])
    except PromptTooLongError as error:
        raise PromptTooLongError(f"line {line}: {error}") from None
    except UsageError as error:
        raise UsageError(f"line {line}: {error}") from None


def _likeliest(logprobs: Sequence[float]) -> int:
    return max(range(len(logprobs)), key=logprobs.__getitem__)


def _share(name: str, right: Sequence[bool], items: Any) -> Figure:
    return Figure(name, tuple(map(float, right)), (1.0,) * len(right), items)


def _nobody(done: int, total: int) -> None:
    """Listens."""
