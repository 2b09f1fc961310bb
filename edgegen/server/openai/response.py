"""OpenAI's responses: the frame of a completion and of the chunks of its stream, and their usage."""

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from edgegen.generation.results import GenerationResult
from edgegen.openai.answer import usage
from edgegen.server.api_error import ApiError
from edgegen.server.wire import Event

DONE = Event("[DONE]")
"""Ends a stream."""


_NOTHING: Mapping[str, Any] = {}


class CompletionFrame:
    """What every chunk of one completion has."""

    def __init__(self, model: str, prefix: str, *, include_usage: bool) -> None:
        self._common = {"id": f"{prefix}-{uuid.uuid4().hex}", "created": int(time.time()), "model": model}
        self._include_usage = include_usage

    def body(self, kind: str, choices: list[dict[str, Any]], used: dict[str, Any]) -> dict[str, Any]:
        return {**self._common, "object": kind, "choices": choices, "usage": used}

    def chunk(self, kind: str, choice: dict[str, Any], extra: Mapping[str, Any] = _NOTHING) -> Event:
        content = {**self._common, "object": kind, "choices": [choice], **extra}
        return Event.of(content | {"usage": None} if self._include_usage else content)

    def end(self, kind: str, used: dict[str, Any]) -> list[Event]:
        """The last events; among them the usage, if it was asked for."""
        if not self._include_usage:
            return [DONE]
        return [Event.of({**self._common, "object": kind, "choices": [], "usage": used}), DONE]


def failed(error: ApiError) -> list[Event]:
    """The last event of a stream that cannot go on."""
    return [Event.of(error.body)]


def total_usage(results: Sequence[GenerationResult]) -> dict[str, Any]:
    """The tokens of all prompts and answers, and how many of the prompts' prefix caching has saved."""
    total, cached = dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), 0), 0
    for result in results:
        one = usage(result, sum(len(choice.token_ids) for choice in result.choices))
        cached += result.timings.cached_tokens
        total = {name: value + one[name] for name, value in total.items()}
    return total | {"prompt_tokens_details": {"cached_tokens": cached}}
