"""Anthropic's responses: a result as a message of content blocks, and a stream as its events."""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from edgegen.generation.cancellation import CancelToken
from edgegen.generation.results import GenerationChunk, GenerationResult
from edgegen.llm import LLM
from edgegen.options.generation import GenerationOptions
from edgegen.server.http.api_error import ApiError
from edgegen.server.http.error_format import message_error
from edgegen.server.messages.blocks import signature
from edgegen.server.wire.wire import ChatPrompt, Event, PromptInfo, ResponseWriter, WireRequest, dropped_field

PING = Event.of({"type": "ping"}, "ping")


class MessageWriter(ResponseWriter):
    """
    Thoughts are blocks of their own. Where the client does not want to see them, their blocks are empty, and a ping
    tells that the model goes on.
    """

    def __init__(self, model: str, asked: WireRequest) -> None:
        self._common = {"id": f"msg_{uuid.uuid4().hex}", "type": "message", "role": "assistant", "model": model}
        self._asked = asked.settings
        self._hides = asked.settings.body.get("thinking", {}).get("display") == "omitted"
        self._block: dict[str, Any] | None = None
        self._index = -1
        self._thoughts = list[str]()

    def begin(self, facts: PromptInfo) -> list[Event]:
        """How much of the prompt is cached is known at the end, and is told there."""
        message: dict[str, Any] = {
            **self._common,
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": _usage(facts.prompt_tokens, 0, 0),
            **dropped_field(facts.dropped_messages),
        }
        return [_event("message_start", message=message), PING]

    def chunk(self, piece: GenerationChunk, prompt: int) -> list[Event]:
        events = list[Event]()
        if piece.reasoning_content:
            events += self._open({"type": "thinking", "thinking": "", "signature": ""})
            self._thoughts.append(piece.reasoning_content)
            thought = {"type": "thinking_delta", "thinking": piece.reasoning_content}
            events.append(PING if self._hides else self._delta(thought))
        if piece.content:
            events += self._open({"type": "text", "text": ""})
            events.append(self._delta({"type": "text_delta", "text": piece.content}))
        return events + self._calls(piece)

    def end(self, results: Sequence[GenerationResult]) -> list[Event]:
        result = results[0]
        delta = {"stop_reason": self._stop_reason(result), "stop_sequence": self._stop_sequence(result)}
        usage = _result_usage(result)
        ended = _event("message_delta", delta=delta, usage=usage, **self._managed())
        return [*self._close(), ended, _event("message_stop")]

    def failed(self, error: ApiError) -> list[Event]:
        return [Event.of(message_error(error), "error")]

    def body(self, results: Sequence[GenerationResult]) -> dict[str, Any]:
        result = results[0]
        return {
            **self._common,
            "content": self._content(result),
            "stop_reason": self._stop_reason(result),
            "stop_sequence": self._stop_sequence(result),
            "usage": _result_usage(result),
            **self._managed(),
            **dropped_field(result.dropped_messages),
        }

    def _content(self, result: GenerationResult) -> list[dict[str, Any]]:
        blocks = list[dict[str, Any]]()
        if thoughts := result.reasoning_content:
            sign = signature(thoughts, shown=not self._hides)
            blocks.append({"type": "thinking", "thinking": "" if self._hides else thoughts, "signature": sign})
        if result.content:
            blocks.append({"type": "text", "text": result.content})
        blocks += [
            {"type": "tool_use", "id": call.id, "name": call.name, "input": call.arguments}
            for call in result.tool_calls
        ]
        return blocks

    def _calls(self, piece: GenerationChunk) -> list[Event]:
        events = list[Event]()
        for delta in piece.tool_call_deltas:
            if delta.id is not None:
                events += self._open({"type": "tool_use", "id": delta.id, "name": delta.name, "input": {}})
            if delta.arguments:
                events.append(self._delta({"type": "input_json_delta", "partial_json": delta.arguments}))
        return events

    def _open(self, block: dict[str, Any]) -> list[Event]:
        """Begin ``block``, unless it is text or thoughts that go on."""
        if self._block is not None and self._block["type"] == block["type"] != "tool_use":
            return []
        closed = self._close()
        self._index += 1
        self._block = block
        return [*closed, _event("content_block_start", index=self._index, content_block=block)]

    def _close(self) -> list[Event]:
        block, self._block = self._block, None
        if block is None:
            return []
        stop = _event("content_block_stop", index=self._index)
        if block["type"] != "thinking":
            return [stop]
        thoughts = "".join(self._thoughts)
        self._thoughts.clear()
        return [self._delta({"type": "signature_delta", "signature": signature(thoughts, shown=not self._hides)}), stop]

    def _delta(self, delta: Mapping[str, Any]) -> Event:
        return _event("content_block_delta", index=self._index, delta=delta)

    def _stop_reason(self, result: GenerationResult) -> str:
        if result.finish_reason == "tool_calls":
            return "tool_use"
        if self._stop_sequence(result) is not None:
            return "stop_sequence"
        if result.finish_reason == "stop":
            return "end_turn"
        return "model_context_window_exceeded" if result.stopped_by == "context" else "max_tokens"

    def _stop_sequence(self, result: GenerationResult) -> str | None:
        """Return the match if the client asked to stop at it; None otherwise, as a template has stop strings of its
        own."""
        matched, stops = result.matched, self._asked.values.get("stop_strings", ())
        if not isinstance(matched, str) or result.finish_reason != "stop":
            return None
        known = result.stopped_by == "stop_regex" or matched in ([stops] if isinstance(stops, str) else stops)
        return matched if known else None

    def _managed(self) -> dict[str, Any]:
        """Of the edits that ``context_management`` asks for, none is ever made; a client that asks is told so."""
        return {"context_management": {"applied_edits": []}} if "context_management" in self._asked.body else {}


class CountWriter(ResponseWriter):
    """The number of tokens of a prompt."""

    def __init__(self, _model: str, asked: WireRequest) -> None:
        self._prompts = [prompt for prompt in asked.prompts if isinstance(prompt, ChatPrompt)]
        self._managed = "context_management" in asked.settings.body
        self._tokens = 0

    def prepare(self, llm: LLM, options: GenerationOptions, cancel: CancelToken) -> None:
        self._tokens = sum(
            len(
                llm.encode_chat(
                    prompt.conversation,
                    tools=prompt.tools,
                    tool_choice=prompt.tool_choice,
                    thinking=options.thinking,
                    reasoning_effort=options.reasoning_effort,
                    max_thinking_tokens=options.max_thinking_tokens,
                )
            )
            for prompt in self._prompts
        )

    def failed(self, error: ApiError) -> list[Event]:
        return []

    def body(self, results: Sequence[GenerationResult]) -> dict[str, Any]:
        managed = {"context_management": {"original_input_tokens": self._tokens}} if self._managed else {}
        return {"input_tokens": self._tokens, **managed}


def _event(name: str, **content: Any) -> Event:
    return Event.of({"type": name, **content}, name)


def _result_usage(result: GenerationResult) -> dict[str, int]:
    timings = result.timings
    return _usage(timings.prompt_tokens, timings.cached_tokens, len(result.token_ids))


def _usage(prompt: int, cached: int, output: int) -> dict[str, int]:
    """Anthropic counts what is read from a cache apart."""
    return {
        "input_tokens": prompt - cached,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": cached,
        "output_tokens": output,
    }
