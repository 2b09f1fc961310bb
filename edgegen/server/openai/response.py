"""OpenAI's responses: the frame of a completion and of the chunks of its stream, and their usage."""

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from edgegen.generation.results import GenerationChunk, GenerationResult, PromptProgress
from edgegen.openai.answer import usage
from edgegen.server.wire.llama_fields import RunningTimings, prompt_progress, result_timings
from edgegen.server.wire.wire import Event, PromptInfo, WireRequest

DONE = Event("[DONE]")
"""Ends a stream."""


_NOTHING: Mapping[str, Any] = {}


class CompletionFrame:
    """Fields that every chunk of one completion has."""

    def __init__(self, model: str, prefix: str, asked: WireRequest) -> None:
        self._timed = asked.settings.body.get("timings_per_token", False)
        self._common = {"id": f"{prefix}-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}
        self._include_usage = asked.include_usage
        self._running = RunningTimings(asked.begin)

    def begin(self, facts: PromptInfo) -> None:
        self._running.prompt_tokens = facts.prompt_tokens

    def count(self, piece: GenerationChunk) -> None:
        """Count the tokens of a piece before its chunks are made."""
        self._running.add(len(piece.token_ids))

    def body(
        self, kind: str, choices: list[dict[str, Any]], used: dict[str, Any], results: Sequence[GenerationResult]
    ) -> dict[str, Any]:
        return {**self._common, "object": kind, "choices": choices, "usage": used, **self._timings(results)}

    def chunk(self, kind: str, choice: dict[str, Any], extra: Mapping[str, Any] = _NOTHING) -> Event:
        timed = {"timings": self._running.told()} if self._timed and self._running.tokens else {}
        content = {**self._common, "object": kind, "choices": [choice], **extra, **timed}
        return Event.of(content | {"usage": None} if self._include_usage else content)

    def progress(self, kind: str, choice: dict[str, Any], told: PromptProgress) -> list[Event]:
        """A piece without text that tells how much of the prompt has been read."""
        return [self.chunk(kind, choice, {"prompt_progress": prompt_progress(told)})]

    def end(self, kind: str, used: dict[str, Any], results: Sequence[GenerationResult]) -> list[Event]:
        """The last events; among them the usage and the timings, if they were asked for."""
        told = ({"usage": used} if self._include_usage else {}) | self._timings(results)
        return [Event.of({**self._common, "object": kind, "choices": [], **told}), DONE] if told else [DONE]

    def _timings(self, results: Sequence[GenerationResult]) -> dict[str, Any]:
        """Return the timings of the first answer, which several prompts' answers ran beside."""
        return {"timings": result_timings(results[0])} if self._timed and results else {}


def total_usage(results: Sequence[GenerationResult]) -> dict[str, Any]:
    """The tokens of all prompts and answers, and how many of the prompts' prefix caching has saved."""
    total, cached = dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), 0), 0
    for result in results:
        one = usage(result, sum(len(choice.token_ids) for choice in result.choices))
        cached += result.timings.cached_tokens
        total = {name: value + one[name] for name, value in total.items()}
    return total | {"prompt_tokens_details": {"cached_tokens": cached}}
