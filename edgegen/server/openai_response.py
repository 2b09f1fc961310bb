"""OpenAI's responses: the bodies of completions, and the chunks of their streams."""

import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from edgegen.batch.openai import CHAT
from edgegen.batch.openai_answer import (
    chat_completion,
    chat_logprobs,
    finish_reason,
    text_completion,
    text_logprobs,
    usage,
)
from edgegen.generation.results import GenerationChunk, GenerationResult
from edgegen.sampling.logprobs import TokenLogprob


@dataclass(frozen=True, slots=True)
class Echo:
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
        """Those of the prompt, with null for its first token; None if they were not asked for."""
        if self.entries is None:
            return None
        rest = text_logprobs(self.entries, self._first_length) or {}
        first: dict[str, Any] = {
            "tokens": self.first,
            "token_logprobs": None,
            "top_logprobs": None,
            "text_offset": 0,
        }
        return {name: [value, *rest.get(name, [])] for name, value in first.items()}

    @property
    def length(self) -> int:
        """Characters of its tokens, for the offsets of those behind it."""
        return self._first_length + sum(len(entry.token) for entry in self.entries or ())

    @property
    def _first_length(self) -> int:
        """None of the text, for a token that the tokenizer has put before it."""
        return len(self.first) if self.text.startswith(self.first) else 0


@dataclass(slots=True)
class ResponseWriter:
    """Writes one response, whole or in chunks."""

    url: str
    model: str
    include_usage: bool = False
    id: str = ""
    created: int = field(default_factory=lambda: int(time.time()))
    _offsets: dict[int, int] = field(default_factory=dict[int, int])
    _begun: set[int] = field(default_factory=set[int])

    def __post_init__(self) -> None:
        self.id = f"{'chatcmpl' if self._is_chat else 'cmpl'}-{uuid.uuid4().hex}"

    @property
    def _is_chat(self) -> bool:
        return self.url == CHAT

    def body(self, results: Sequence[GenerationResult | None], echoes: Sequence[Echo | None]) -> dict[str, Any]:
        """The whole response; a prompt has a result, or an echo, or both."""
        choices = list[dict[str, Any]]()
        for result, echo in zip(results, echoes, strict=True):
            if result is None:
                made: list[dict[str, Any]] = [{"text": "", "index": 0, "logprobs": None, "finish_reason": "length"}]
            else:
                made = (chat_completion if self._is_chat else text_completion)(result)["choices"]
            for choice in made:
                if echo is not None:
                    choice["text"] = echo.text + choice["text"]
                    choice["logprobs"] = _joined(echo, choice["logprobs"])
                choices.append({**choice, "index": len(choices)})
        kind = "chat.completion" if self._is_chat else "text_completion"
        return self._framed(kind) | {"choices": choices, "usage": total_usage(results, echoes)}

    def chunks(self, piece: GenerationChunk, index: int) -> list[dict[str, Any]]:
        """The chunks of a piece of answer ``index``."""
        made = list[dict[str, Any]]()
        reason = None if piece.finish_reason is None else finish_reason(piece.finish_reason)
        if self._is_chat:
            if index not in self._begun:
                self._begun.add(index)
                made.append(self._chat_chunk(index, {"role": "assistant", "content": "", "refusal": None}))
            if piece.text or piece.logprobs:
                made.append(self._chat_chunk(index, {"content": piece.text}, chat_logprobs(piece.logprobs)))
            if reason is not None:
                made.append(self._chat_chunk(index, {}, None, reason))
        elif piece.text or piece.logprobs or reason is not None:
            offset = self._offsets.get(index, 0)
            self._offsets[index] = offset + sum(len(entry.token) for entry in piece.logprobs)
            made.append(self._text_chunk(index, piece.text, text_logprobs(piece.logprobs, offset), reason))
        return made

    def echo(self, echo: Echo, index: int, *, last: bool) -> dict[str, Any]:
        """The chunk of a prompt before answer ``index``; the ``last`` if there is no answer."""
        self._offsets[index] = echo.length
        return self._text_chunk(index, echo.text, echo.logprobs(), "length" if last else None)

    def usage(self, results: Sequence[GenerationResult | None], echoes: Sequence[Echo | None]) -> dict[str, Any]:
        """The chunk before the end of a stream that was asked for its usage."""
        return self._chunk([]) | {"usage": total_usage(results, echoes)}

    def _chat_chunk(
        self, index: int, delta: Mapping[str, Any], logprobs: Any = None, reason: str | None = None
    ) -> dict[str, Any]:
        return self._chunk([{"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}])

    def _text_chunk(self, index: int, text: str, logprobs: Any, reason: str | None) -> dict[str, Any]:
        return self._chunk([{"index": index, "text": text, "logprobs": logprobs, "finish_reason": reason}])

    def _chunk(self, choices: list[dict[str, Any]]) -> dict[str, Any]:
        kind = "chat.completion.chunk" if self._is_chat else "text_completion"
        chunk = self._framed(kind) | {"choices": choices}
        return chunk | {"usage": None} if self.include_usage else chunk

    def _framed(self, kind: str) -> dict[str, Any]:
        return {"id": self.id, "object": kind, "created": self.created, "model": self.model}


def total_usage(results: Sequence[GenerationResult | None], echoes: Sequence[Echo | None]) -> dict[str, Any]:
    """The tokens of all prompts and answers, and how many of the prompts' prefix caching has saved."""
    total, cached = dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), 0), 0
    for result, echo in zip(results, echoes, strict=True):
        if result is not None:
            one = usage(result, sum(len(choice.token_ids) for choice in result.choices))
            cached += result.timings.cached_tokens
        else:
            read = echo.prompt_tokens if echo else 0
            one = {"prompt_tokens": read, "completion_tokens": 0, "total_tokens": read}
        total = {name: value + one[name] for name, value in total.items()}
    return total | {"prompt_tokens_details": {"cached_tokens": cached}}


def _joined(echo: Echo, logprobs: dict[str, Any] | None) -> dict[str, Any] | None:
    """The log-probabilities of a prompt and its answer."""
    before = echo.logprobs()
    if before is None:
        return logprobs
    if logprobs is None:
        return before
    offsets = [echo.length + offset for offset in logprobs["text_offset"]]
    behind = logprobs | {"text_offset": offsets}
    return {name: [*values, *behind[name]] for name, values in before.items()}
