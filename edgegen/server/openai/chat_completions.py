"""ChatCompletions: OpenAI's ``/v1/chat/completions``, with tools and reasoning."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from edgegen.batch.openai import CHAT, COMPLETION
from edgegen.batch.openai_answer import chat_completion, chat_logprobs, finish_reason
from edgegen.chat import Conversation
from edgegen.chat.tools import ToolCallDelta
from edgegen.generation.cancellation import CancelToken
from edgegen.generation.results import GenerationChunk, GenerationResult
from edgegen.llm import LLM
from edgegen.options.generation import GenerationOptions
from edgegen.server.api_error import ApiError
from edgegen.server.openai.request import SHARED, given_parameters, request_settings, switch, wants_usage
from edgegen.server.openai.response import CompletionFrame, failed, total_usage
from edgegen.server.options import MOST_MESSAGES, MOST_TOOLS
from edgegen.server.wire import ChatPrompt, Event, PromptFacts, WireRequest

_OWN = ("messages", "tools", "tool_choice", "parallel_tool_calls")
_WHOLE, _CHUNK = "chat.completion", "chat.completion.chunk"


class ChatCompletions:
    url = CHAT

    def read(self, body: Mapping[str, Any]) -> WireRequest:
        given = given_parameters(body, self.url, {*SHARED, *_OWN})
        if switch(given, "echo"):
            raise ApiError(400, f"'echo' is a parameter of {COMPLETION}: leave it out.", param="echo")
        stream, include_usage = switch(given, "stream"), wants_usage(given)
        conversation = read_conversation(given.get("messages"))
        prompt = ChatPrompt(
            conversation,
            tools=read_tools(given),
            tool_choice=given.get("tool_choice"),
            parallel_tool_calls=switch(given, "parallel_tool_calls", default=True),
        )
        settings = request_settings(given, self.url, (*_OWN, "echo"))
        settings = replace(settings, values={"context_overflow": "drop_oldest", **settings.values})
        return WireRequest((prompt,), settings, stream, include_usage)

    def writer(self, model: str, asked: WireRequest) -> "ChatCompletionWriter":
        return ChatCompletionWriter(model, asked)

    def error_body(self, error: ApiError) -> dict[str, Any]:
        return error.body


class ChatCompletionWriter:
    def __init__(self, model: str, asked: WireRequest) -> None:
        self._frame = CompletionFrame(model, "chatcmpl", include_usage=asked.include_usage)
        self._begun = set[int]()
        self._dropped = 0

    def prepare(self, llm: LLM, options: GenerationOptions, cancel: CancelToken) -> None:
        """Nothing: the conversation is tokenized when it is submitted."""

    def begin(self, facts: PromptFacts) -> list[Event]:
        self._dropped = facts.dropped_messages
        return []

    def chunk(self, piece: GenerationChunk, prompt: int) -> list[Event]:
        made, index = list[Event](), piece.index
        if index not in self._begun:
            self._begun.add(index)
            made.append(self._chunk(index, {"role": "assistant", "content": "", "refusal": None}))
        if piece.reasoning_content:
            made.append(self._chunk(index, {"reasoning_content": piece.reasoning_content}))
        if piece.content or piece.logprobs:
            made.append(self._chunk(index, {"content": piece.content}, chat_logprobs(piece.logprobs)))
        if piece.tool_call_deltas:
            calls = [_call_delta(delta) for delta in piece.tool_call_deltas]
            made.append(self._chunk(index, {"tool_calls": calls}))
        if piece.finish_reason is not None:
            made.append(self._chunk(index, {}, None, finish_reason(piece.finish_reason)))
        return made

    def end(self, results: Sequence[GenerationResult]) -> list[Event]:
        return self._frame.end(_CHUNK, total_usage(results))

    def failed(self, error: ApiError) -> list[Event]:
        return failed(error)

    def body(self, results: Sequence[GenerationResult]) -> dict[str, Any]:
        body = self._frame.body(_WHOLE, chat_completion(results[0])["choices"], total_usage(results))
        return body | _dropped(results[0].dropped_messages)

    def _chunk(self, index: int, delta: Mapping[str, Any], logprobs: Any = None, reason: str | None = None) -> Event:
        choice = {"index": index, "delta": delta, "logprobs": logprobs, "finish_reason": reason}
        return self._frame.chunk(_CHUNK, choice, _dropped(self._dropped))


def _call_delta(delta: ToolCallDelta) -> dict[str, Any]:
    function = {"arguments": delta.arguments}
    if delta.id is None:
        return {"index": delta.index, "function": function}
    return {"index": delta.index, "id": delta.id, "type": "function", "function": {"name": delta.name, **function}}


def _dropped(messages: int) -> dict[str, int]:
    """A field of edgegen's own: how many of the oldest messages the model has not read."""
    return {"dropped_messages": messages} if messages else {}


def read_tools(given: Mapping[str, Any]) -> Any:
    """``tools`` as they are; None for an empty list.

    Raises:
        ApiError: there are too many.
    """
    tools: object = given.get("tools")
    if not isinstance(tools, list):
        return tools  # refused with the tools' own error
    count = len(cast(list[object], tools))
    if count > MOST_TOOLS:
        raise ApiError(400, f"tools: at most {MOST_TOOLS}, found {count}.", param="tools")
    return cast(Any, tools) if count else None


def read_conversation(messages: object) -> Conversation:
    """
    Raises:
        ApiError: it is no list, or has too many messages.
        ConversationError: a message is malformed.
    """
    if not isinstance(messages, list):
        raise ApiError(400, "messages: a list of messages expected.", param="messages")
    count = len(cast(list[object], messages))
    if count > MOST_MESSAGES:
        raise ApiError(400, f"messages: at most {MOST_MESSAGES}, found {count}.", param="messages")
    return Conversation(cast(list[Any], messages))
