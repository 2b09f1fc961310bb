"""Scorer: turns a context and its continuations into requests that score them."""

from collections.abc import Callable, Iterable, Iterator
from collections.abc import Sequence as Ids
from dataclasses import dataclass
from typing import NamedTuple, TypeGuard

from edgegen.errors import OptionError, PromptTooLongError, UsageError, one_or_list, refuse_any
from edgegen.generation.prompt_encoder import Prompt, PromptEncoder
from edgegen.generation.request import Answer, Request
from edgegen.options.option import MOST_TOP_LOGPROBS
from edgegen.options.validation import number
from edgegen.sampling.logprobs import LogprobRecorder
from edgegen.scoring.scored_sequence import ScoredGroup, ScoredSequence
from edgegen.scoring.scores import Score
from edgegen.stopping.text_watcher import TextWatcher

_MOST_ROWS = 8
"""Continuations that run at once: each has a slot of the KV cache."""


class Continued(NamedTuple):
    """A context and what follows it: ``ids``, of which those from ``begin`` on are the continuation."""

    ids: list[int]
    begin: int


@dataclass(frozen=True, slots=True)
class ScoredText:
    """One continuation on its way to its score."""

    sequence: ScoredSequence
    answer: Answer

    @classmethod
    def of(cls, text: Continued, prompt_length: int, recorder: LogprobRecorder) -> "ScoredText":
        """``prompt_length``: how much of the context is read as a prompt."""
        sequence = ScoredSequence.of(text.ids, prompt_length, text.begin, recorder.record)
        return cls(sequence, Answer(sequence, TextWatcher(None, (), ()), recorder))

    def score(self) -> Score:
        """When its request has ended."""
        result = self.answer.result(None)
        token_ids = tuple(entry.token_id for entry in result.logprobs)
        complete = result.finish_reason == "length"
        return Score(token_ids, result.logprobs, complete and self.sequence.is_greedy, complete)


class Scorer:
    """Tokenizes contexts and continuations, and checks that they fit the model."""

    def __init__(self, encoder: PromptEncoder, max_context: int) -> None:
        self._encoder = encoder
        self._max_context = max_context

    def score(
        self, context: Prompt, continuations: Ids[Prompt], top_logprobs: int, run: Callable[[Ids[Request]], object]
    ) -> list[Score]:
        """The score of each continuation, by requests that ``run`` runs; shared prefixes are computed once.

        Raises:
            UsageError: the context or a continuation cannot be scored; all such continuations are told.
            PromptTooLongError: what is wrong is that they do not fit the model's context.
            OptionError: ``top_logprobs`` is out of range.
            LogitsError: the model's logits are NaN or infinite.
        """
        refuse_any(number("top_logprobs", top_logprobs, int, 0, MOST_TOP_LOGPROBS), OptionError)
        continued = self._continued(context, continuations)
        shared = _shared(continued)
        texts = [
            ScoredText.of(text, shared[text.ids[0]], LogprobRecorder(self._encoder.spell, top_logprobs))
            for text in continued
        ]
        parts = [part for first in shared for part in _parts([one for one in texts if one.sequence.ids[0] == first])]
        run(
            [Request(ScoredGroup([one.sequence for one in part]), [one.answer for one in part], None) for part in parts]
        )
        return [text.score() for text in texts]

    def _continued(self, context: Prompt, continuations: Ids[Prompt]) -> list[Continued]:
        split = _Text(self._encoder, context) if isinstance(context, str) else _Tokens(self._encoder, context)
        continued, errors = list[Continued](), list[UsageError]()
        for n, continuation in enumerate(continuations, 1):
            what = "the continuation" if len(continuations) == 1 else f"continuation {n}"
            try:
                continued.append(self._checked(split.before(continuation, what), what))
            except UsageError as error:
                errors.append(error)
        raise_all(errors)
        return continued

    def _checked(self, text: Continued, what: str) -> Continued:
        ids, begin = text
        if not ids[begin:]:
            raise UsageError(f"{what} is empty: give at least one token to score.")
        if not begin:
            ids, begin = [*self._encoder.begin([], "the context"), *ids], 1
        if len(ids) - 1 > self._max_context:  # the last token is never fed, so it needs no room
            raise PromptTooLongError(
                f"the context and {what} have {len(ids)} tokens together, but this model's context is "
                f"{self._max_context}, and one token more can be scored: shorten one of them."
            )
        return Continued(ids, begin)


class _Text:
    """A context given as text. It is tokenized with what follows it: a token may reach over the border."""

    def __init__(self, encoder: PromptEncoder, context: str) -> None:
        self._encoder = encoder
        self._context = context
        self._ids = encoder.read(context.rstrip(), "the context")

    def before(self, continuation: Prompt, what: str) -> Continued:
        """Split where the tokens of both together are no longer those of the context."""
        if isinstance(continuation, str | list | tuple) and not continuation:
            return Continued(self._ids, len(self._ids))
        if not isinstance(continuation, str):
            raise UsageError(f"{what} is no text, but the context is one: give texts, or token ids, for both.")
        ids = self._encoder.read(self._context + continuation, what)
        return Continued(ids, _common_prefix(self._ids, ids))


class _Tokens:
    """A context given as ids."""

    def __init__(self, encoder: PromptEncoder, context: Ids[int]) -> None:
        self._encoder = encoder
        self._ids = encoder.read(context, "the context")

    def before(self, continuation: Prompt, what: str) -> Continued:
        if isinstance(continuation, str):
            raise UsageError(f"{what} is a text, but the context is not: give texts, or token ids, for both.")
        return Continued([*self._ids, *self._encoder.read(continuation, what)], len(self._ids))


def is_several(continuation: Prompt | Ids[Prompt]) -> TypeGuard[Ids[Prompt]]:
    """Whether these are several continuations, perhaps in a list of one."""
    return isinstance(continuation, list | tuple) and bool(continuation) and isinstance(continuation[0], Iterable)


def _shared(texts: Iterable[Continued]) -> dict[int, int]:
    """By their first ids, what texts have of the context in common.

    All have the context's, but where the very first token reaches over its border: there it is the
    beginning-of-sequence id.
    """
    shared: dict[int, int] = {}
    for ids, begin in texts:
        shared[ids[0]] = min(begin, shared.get(ids[0], begin))
    return shared


def _common_prefix(a: Ids[int], b: Ids[int]) -> int:
    shorter = min(len(a), len(b))
    return next((n for n in range(shorter) if a[n] != b[n]), shorter)


def _parts(texts: Ids[ScoredText]) -> Iterator[list[ScoredText]]:
    """Yield batches of at most ``_MOST_ROWS`` texts; those that need no row go with the first."""
    rows = [text for text in texts if len(text.sequence.known) > 1]
    rowless = [text for text in texts if len(text.sequence.known) == 1]
    for start in range(0, max(len(rows), 1), _MOST_ROWS):
        yield [*rows[start : start + _MOST_ROWS], *(rowless if start == 0 else ())]


def raise_all(errors: Ids[UsageError]) -> None:
    """Raise what ``errors`` say, if anything: the only one, or one that lists them, of their kind if they share it."""
    if len(errors) > 1:
        kinds = {type(error) for error in errors}
        raise (kinds.pop() if len(kinds) == 1 else UsageError)(one_or_list([str(error) for error in errors]))
    if errors:
        raise errors[0]
