"""OpenAI's ``/v1/completions``, with the prompt repeated and scored by ``echo``."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from edgegen.generation.cancellation import CancelToken
from edgegen.generation.results import GenerationChunk, GenerationResult, PromptProgress
from edgegen.llm import LLM
from edgegen.openai.answer import TextOffsets, finish_reason, text_completion, text_logprobs
from edgegen.openai.schema import COMPLETION
from edgegen.options.generation import GenerationOptions
from edgegen.sampling.logprobs import TokenLogprob
from edgegen.server.openai.request import request_settings, wants_usage
from edgegen.server.openai.response import CompletionFrame, total_usage
from edgegen.server.openai.schema import COMPLETION_REQUEST
from edgegen.server.wire.fill import FillPrompt
from edgegen.server.wire.parameters import refusal, several
from edgegen.server.wire.wire import Event, PromptInfo, ResponseWriter, Wire, WireRequest

_DEFAULT_TOKENS = 16
"""Limit of new tokens in the API for completions without ``max_tokens``."""

_KIND = "text_completion"


def _read(body: Mapping[str, Any]) -> WireRequest:
    params = COMPLETION_REQUEST.read(body)
    stream, echo, include_usage = params.get("stream", False), params.get("echo", False), wants_usage(params)
    settings = request_settings(params, COMPLETION, _DEFAULT_TOKENS)
    generates = not (echo and settings.values.get("max_new_tokens") == 0)
    if not generates:  # the options are checked, and not used
        settings = replace(settings, values={**settings.values, "max_new_tokens": 1})
    prompts, progress = several(params["prompt"]), params.get("return_progress", False)
    if suffix := params.get("suffix"):
        if echo or not all(isinstance(one, str) for one in prompts):
            raise refusal(["suffix goes with prompts that are texts, and without echo"], "suffix")
        filled = tuple(FillPrompt(cast(str, one), suffix) for one in prompts)
        return WireRequest(filled, settings, stream, include_usage, reports_progress=progress)
    return WireRequest(
        prompts, settings, stream, include_usage, echo, generates, reports_progress=progress and generates
    )


class CompletionWriter(ResponseWriter):
    def __init__(self, model: str, asked: WireRequest) -> None:
        self._asked = asked
        self._frame = CompletionFrame(model, "cmpl", asked)
        self._echoes = list[_Echo]()
        self._answers = 1
        self._offsets = dict[int, TextOffsets]()

    def prepare(self, llm: LLM, options: GenerationOptions, cancel: CancelToken) -> None:
        self._answers = options.num_return_sequences if self._asked.generates else 1
        if self._asked.echo:
            prompts = cast(tuple[str | list[int], ...], self._asked.prompts)
            self._echoes = [_echo(llm, prompt, options, cancel) for prompt in prompts]

    def begin(self, facts: PromptInfo) -> list[Event]:
        """The prompts, before their answers."""
        self._frame.begin(facts)
        reason = None if self._asked.generates else "length"
        events = list[Event]()
        for at, echo in enumerate(self._echoes):
            for index in range(at * self._answers, (at + 1) * self._answers):
                self._offsets[index] = TextOffsets(echo.length)
                events.append(self._chunk(index, echo.text, echo.logprobs(), reason))
        return events

    def chunk(self, piece: GenerationChunk, prompt: int) -> list[Event]:
        self._frame.count(piece)
        reason = None if piece.finish_reason is None else finish_reason(piece.finish_reason)
        if not (piece.text or piece.logprobs or reason):
            return []
        index = prompt * self._answers + piece.index
        offsets = self._offsets.setdefault(index, TextOffsets())
        return [self._chunk(index, piece.text, text_logprobs(piece.logprobs, offsets), reason)]

    def progress(self, told: PromptProgress, prompt: int) -> list[Event]:
        choice = {"index": prompt * self._answers, "text": "", "logprobs": None, "finish_reason": None}
        return self._frame.progress(_KIND, choice, told)

    def end(self, results: Sequence[GenerationResult]) -> list[Event]:
        return self._frame.end(_KIND, self._usage(results), results)

    def body(self, results: Sequence[GenerationResult]) -> dict[str, Any]:
        choices = list[dict[str, Any]]()
        for at in range(len(self._asked.prompts)):
            nothing: dict[str, Any] = {"text": "", "index": 0, "logprobs": None, "finish_reason": "length"}
            for choice in text_completion(results[at])["choices"] if results else [nothing]:
                if self._echoes:
                    echo = self._echoes[at]
                    choice["text"] = echo.text + choice["text"]
                    choice["logprobs"] = _joined(echo, choice["logprobs"])
                choices.append({**choice, "index": len(choices)})
        return self._frame.body(_KIND, choices, self._usage(results), results)

    def _usage(self, results: Sequence[GenerationResult]) -> dict[str, Any]:
        if results:
            return total_usage(results)
        read = sum(echo.prompt_tokens for echo in self._echoes)
        return total_usage([]) | {"prompt_tokens": read, "total_tokens": read}

    def _chunk(self, index: int, text: str, logprobs: Any, reason: str | None) -> Event:
        choice = {"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}
        return self._frame.chunk(_KIND, choice)


COMPLETION_WIRE = Wire(COMPLETION, _read, CompletionWriter)


@dataclass(frozen=True, slots=True)
class _Echo:
    """A prompt that is repeated before its answer.

    Attributes:
        first: the text of its first token, which has no log-probability.
        entries: those of the other tokens, if they were asked for.
    """

    text: str
    prompt_tokens: int
    first: str = ""
    entries: tuple[TokenLogprob, ...] | None = None

    def logprobs(self) -> dict[str, Any] | None:
        """Return the log-probabilities of the prompt, with null for its first token; None if they were not asked
        for."""
        if self.entries is None:
            return None
        rest = text_logprobs(self.entries, TextOffsets(self._first_length)) or {}
        first: dict[str, Any] = {
            "tokens": self.first,
            "token_logprobs": None,
            "top_logprobs": None,
            "text_offset": 0,
        }
        return {name: [value, *rest.get(name, [])] for name, value in first.items()}

    @property
    def length(self) -> int:
        """Characters of its tokens, for the offsets of those after it."""
        offsets = TextOffsets(self._first_length)
        for entry in self.entries or ():
            offsets.place(entry)
        return offsets.characters

    @property
    def _first_length(self) -> int:
        """None of the text, for a token that the tokenizer has put before it."""
        return len(self.first) if self.text.startswith(self.first) else 0


def _echo(llm: LLM, prompt: str | list[int], options: GenerationOptions, cancel: CancelToken) -> _Echo:
    """The prompt as text, with the log-probabilities of its tokens if ``options`` ask for them."""
    ids = llm.encode(prompt)
    text = prompt if isinstance(prompt, str) else llm.decode(ids, skip_special_tokens=False)
    if not options.logprobs:
        return _Echo(text, len(ids))
    first = llm.decode(ids[:1], skip_special_tokens=False)
    if len(ids) == 1:
        return _Echo(text, 1, first, ())
    score = llm.score(ids[:1], ids[1:], top_logprobs=options.top_logprobs, cancel=cancel)
    return _Echo(text, len(ids), first, score.logprobs)


def _joined(echo: _Echo, logprobs: dict[str, Any] | None) -> dict[str, Any] | None:
    """The log-probabilities of a prompt and its answer."""
    before = echo.logprobs()
    if before is None:
        return logprobs
    if logprobs is None:
        return before
    offsets = [echo.length + offset for offset in logprobs["text_offset"]]
    behind = logprobs | {"text_offset": offsets}
    return {name: [*values, *behind[name]] for name, values in before.items()}
