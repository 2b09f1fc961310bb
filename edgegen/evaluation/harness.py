"""HarnessModel: answers the requests of lm-evaluation-harness with an LLM.

It needs nothing of the harness itself; ``edgegen.evaluation.lm_eval`` puts the two together.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from typing import Any, NamedTuple, Protocol, TypeVar

from edgegen.errors import PromptTooLongError, UsageError
from edgegen.llm import LLM
from edgegen.options.generation import SAMPLING_OPTIONS, GenerationOptions

MOST_NEW_TOKENS = 256
"""Where a task does not say; the harness's own default."""

_LIMITS = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
"""The harness's names for the most new tokens; of several, the first counts."""

T = TypeVar("T")


class HarnessRequest(Protocol):
    """``lm_eval.api.instance.Instance``; ``args`` are what a task asks about."""

    @property
    def args(self) -> tuple[Any, ...]: ...


class Split(NamedTuple):
    """The ids of a context and of its continuation."""

    context: tuple[int, ...]
    continuation: list[int]


class HarnessModel:
    """Answers the harness's three kinds of requests, in their order.

    Texts become tokens as in the harness's ``hf`` model, and what does not fit the context is truncated on the left.
    """

    def __init__(self, llm: LLM) -> None:
        """Wrap a loaded model for lm-evaluation-harness.

        Raises:
            UsageError: the model has no tokenizer, or no token to begin a text with.
        """
        if llm.tokenizer is None:
            raise UsageError(f"{llm.bundle.path} has no tokenizer, and the harness asks about texts.")
        self._llm, self._tokenizer = llm, llm.tokenizer
        self._prefix = llm.encode("")

    def loglikelihood(self, requests: Sequence[HarnessRequest]) -> list[tuple[float, bool]]:
        """Of each ``(context, continuation)``: log-probability, and whether it is what greedy decoding would have said.

        An empty context is the model's beginning-of-sequence token. Neighbours with the same context share its
        computation, as the choices of a question do.
        """
        answers = list[tuple[float, bool]]()
        splits = (self._split(*request.args) for request in _shown(requests))
        for context, group in groupby(splits, key=lambda split: split.context):
            scores = self._llm.score(context, [split.continuation for split in group])
            answers += [(score.logprob, score.is_greedy) for score in scores]
        return answers

    def loglikelihood_rolling(self, requests: Sequence[HarnessRequest]) -> list[float]:
        """Of each ``(text,)``: its log-probability after the beginning-of-sequence token.

        A text longer than the model's context is cut into pieces of that length. Each sees the token before it, and the
        last as many as there is room for. That first token is itself never predicted; the harness's ``hf`` model does
        so where a tokenizer puts it before a text.
        """
        return [
            math.fsum(self._llm.score(context, piece).logprob for context, piece in self._pieces(*request.args))
            for request in _shown(requests)
        ]

    def generate_until(self, requests: Sequence[HarnessRequest]) -> list[str]:
        """Of each ``(context, settings)``: what follows, up to a text of ``until``.

        Other settings have the names of :class:`GenerationOptions`; without ``do_sample`` or a temperature, those of
        sampling do not count.

        Raises:
            OptionError: a setting is unknown or wrong.
            PromptTooLongError: an answer may be as long as the model's context.
        """
        return [self._generate(*request.args) for request in _shown(requests)]

    def _split(self, context: str, continuation: str) -> Split:
        """Split after as many tokens as the context has by itself, but for white space at its end."""
        kept = context.rstrip()
        if kept:
            return self._fitting(self._llm.encode(context + continuation), len(self._llm.encode(kept)))
        ids = self._tokenizer.encode(context + continuation, add_special_tokens=False)
        begun = ids[: len(self._prefix)] == self._prefix
        return self._fitting(ids if begun else [*self._prefix, *ids], len(self._prefix))

    def _fitting(self, ids: list[int], begin: int) -> Split:
        """Without what is too much of the context; the last token is never fed."""
        surplus = max(0, min(len(ids) - 1 - self._llm.max_context, begin - 1))
        return Split(tuple(ids[surplus:begin]), ids[begin:])

    def _pieces(self, text: str) -> Iterator[Split]:
        ids, size = self._tokenizer.encode(text, add_special_tokens=False), self._llm.max_context
        begun = (self._prefix[-1], *ids)
        for begin in range(0, len(ids), size):
            end = min(begin + size, len(ids))
            yield Split(begun[max(end - size, 0) : begin + 1], ids[begin:end])

    def _generate(self, context: str, settings: Mapping[str, Any]) -> str:
        options = _options(settings)
        room = self._llm.max_context - options.max_new_tokens
        if room < 1:
            raise PromptTooLongError(
                f"{options.max_new_tokens} new tokens leave no room for a prompt in this model's context of "
                f"{self._llm.max_context}: give less max_gen_toks."
            )
        return self._llm.generate(self._llm.encode(context)[-room:], options).text


def _options(settings: Mapping[str, Any]) -> GenerationOptions:
    """Translate a task's generation settings to options of a request, greedy unless the task samples.

    Raises:
        OptionError: a setting is unknown or wrong.
    """
    others = {name: value for name, value in settings.items() if name not in ("until", *_LIMITS)}
    if not others.get("do_sample", others.get("temperature")):
        others = {name: value for name, value in others.items() if name not in ("do_sample", *SAMPLING_OPTIONS)}
    until = settings.get("until") or ()
    return GenerationOptions(
        max_new_tokens=next((settings[name] for name in _LIMITS if settings.get(name) is not None), MOST_NEW_TOKENS),
        stop_strings=tuple(text for text in ((until,) if isinstance(until, str) else until) if text),
        do_sample=False,
    ).override(others)


def _shown(requests: Sequence[T]) -> Iterable[T]:
    """With a bar on standard error, if that is a terminal."""
    from tqdm import tqdm

    return tqdm(requests, disable=None)
