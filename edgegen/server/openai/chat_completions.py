"""OpenAI's ``/v1/chat/completions``, with tools and reasoning."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from edgegen.chat import Conversation
from edgegen.chat.tools import ToolCallDelta
from edgegen.generation.results import GenerationChunk, GenerationResult, PromptProgress
from edgegen.openai.answer import chat_completion, chat_logprobs, finish_reason
from edgegen.openai.request import read_chat
from edgegen.openai.schema import CHAT, TEMPLATE_VARIABLES
from edgegen.server.http.api_error import ApiError
from edgegen.server.openai.request import request_settings, wants_usage
from edgegen.server.openai.response import CompletionFrame, total_usage
from edgegen.server.openai.schema import CHAT_REQUEST
from edgegen.server.wire.parameters import refusal
from edgegen.server.wire.wire import ChatPrompt, Event, PromptInfo, ResponseWriter, Wire, WireRequest, dropped_field

_WHOLE, _CHUNK = "chat.completion", "chat.completion.chunk"


def _read(body: Mapping[str, Any]) -> WireRequest:
    params = CHAT_REQUEST.read(body)
    include_usage = wants_usage(params)
    prompt = ChatPrompt(
        read_conversation(params),
        tools=params.get("tools") or None,
        tool_choice=params.get("tool_choice"),
        parallel_tool_calls=params.get("parallel_tool_calls"),
    )
    settings = request_settings(params, CHAT)
    settings = replace(settings, values={"context_overflow": "drop_oldest", **settings.values})
    return WireRequest(
        (prompt,),
        settings,
        params.get("stream", False),
        include_usage,
        reports_progress=params.get("return_progress", False),
    )


def _error_body(error: ApiError) -> dict[str, Any]:
    if error.param != "variables":
        return error.body
    message = error.message.replace("variables", TEMPLATE_VARIABLES, 1)
    return {"error": {**error.body["error"], "message": message, "param": TEMPLATE_VARIABLES}}


class ChatCompletionWriter(ResponseWriter):
    def __init__(self, model: str, asked: WireRequest) -> None:
        self._frame = CompletionFrame(model, "chatcmpl", asked)
        self._begun = set[int]()
        self._dropped = 0

    def begin(self, facts: PromptInfo) -> list[Event]:
        self._dropped = facts.dropped_messages
        self._frame.begin(facts)
        return []

    def chunk(self, piece: GenerationChunk, prompt: int) -> list[Event]:
        events, index = list[Event](), piece.index
        if index not in self._begun:
            self._begun.add(index)
            events.append(self._chunk(index, {"role": "assistant", "content": "", "refusal": None}))
        self._frame.count(piece)
        if piece.reasoning_content:
            events.append(self._chunk(index, {"reasoning_content": piece.reasoning_content}))
        if piece.content or piece.logprobs:
            events.append(self._chunk(index, {"content": piece.content}, chat_logprobs(piece.logprobs)))
        if piece.tool_call_deltas:
            # One call a chunk: some clients read the first entry only.
            events += [self._chunk(index, {"tool_calls": [_call_delta(delta)]}) for delta in piece.tool_call_deltas]
        if piece.finish_reason is not None:
            events.append(self._chunk(index, {}, None, finish_reason(piece.finish_reason)))
        return events

    def progress(self, told: PromptProgress, prompt: int) -> list[Event]:
        choice = {"index": 0, "delta": dict[str, Any](), "logprobs": None, "finish_reason": None}
        return self._frame.progress(_CHUNK, choice, told)

    def end(self, results: Sequence[GenerationResult]) -> list[Event]:
        return self._frame.end(_CHUNK, total_usage(results), results)

    def body(self, results: Sequence[GenerationResult]) -> dict[str, Any]:
        body = self._frame.body(_WHOLE, chat_completion(results[0])["choices"], total_usage(results), results)
        return body | dropped_field(results[0].dropped_messages)

    def _chunk(self, index: int, delta: Mapping[str, Any], logprobs: Any = None, reason: str | None = None) -> Event:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        return self._frame.chunk(_CHUNK, choice, dropped_field(self._dropped))


CHAT_WIRE = Wire(CHAT, _read, ChatCompletionWriter, _error_body)


def _call_delta(delta: ToolCallDelta) -> dict[str, Any]:
    function = {"arguments": delta.arguments}
    if delta.id is None:
        return {"index": delta.index, "function": function}
    return {"index": delta.index, "id": delta.id, "type": "function", "function": {"name": delta.name, **function}}


def read_conversation(params: Mapping[str, Any]) -> Conversation:
    """The conversation of a chat completion's body.

    Raises:
        ApiError: lists everything that is wrong with the conversation.
    """
    problems = list[str]()
    conversation = read_chat(params, problems)
    if conversation is None:
        found = re.search(r"\w+", problems[0])
        named = found[0] if found and found[0] in params else "messages"
        raise refusal(problems, named)
    return conversation
