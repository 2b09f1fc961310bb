"""Wire: what an API of the server makes of a request's body and of its answer."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Protocol, cast, runtime_checkable

from edgegen.chat import Conversation
from edgegen.chat.tools import ToolChoice
from edgegen.generation.cancellation import CancelToken
from edgegen.generation.results import GenerationChunk, GenerationResult, PromptProgress
from edgegen.llm import LLM
from edgegen.options.generation import GenerationOptions
from edgegen.server.http.api_error import ApiError
from edgegen.server.http.options import MOST_TOOL_BYTES
from edgegen.server.wire.request_settings import RequestSettings


@dataclass(frozen=True, slots=True)
class ChatPrompt:
    """A conversation, and the tools that the model may call in its answer.

    ``parallel_tool_calls``: whether it may have several calls; None leaves it to the model's chat template.

    Raises:
        ApiError: the definition of a tool is too large.
    """

    conversation: Conversation
    tools: Sequence[Mapping[str, Any]] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None

    def __post_init__(self) -> None:
        tools = cast(object, self.tools)
        # What is no list is refused where tools are read.
        for n, tool in enumerate(cast(list[object], tools) if isinstance(tools, list) else []):
            size = len(json.dumps(tool))
            if size > MOST_TOOL_BYTES:
                said = f"tools[{n}] has {size} bytes of JSON: at most {MOST_TOOL_BYTES}."
                raise ApiError(400, said, param="tools")


TextPrompt = str | list[int]


class ModelPrompt(Protocol):
    """A prompt that depends on the model: on its chat template, or on its control tokens."""

    def resolve(self, llm: LLM) -> TextPrompt | ChatPrompt:
        """The prompt for this model.

        Raises:
            ApiError: the model cannot do what is asked for.
        """
        ...


@dataclass(frozen=True, slots=True)
class WireRequest:
    """A body that has been read and checked.

    Attributes:
        prompts: one conversation, or the prompts of a completion; they run in one batch.
        include_usage: a stream tells its usage.
        echo: the prompt is part of the answer's text.
        generates: False where only the prompt is asked for, with its log-probabilities.
        follows: the writer reads each chunk of a whole answer too.
        keep_alive: seconds that the model stays loaded after its last request; None changes nothing.
        reports_progress: a stream tells how much of each prompt has been read; its writer is a :class:`ProgressWriter`.
        unloads: nothing is asked for but that the model is unloaded.
        begin: when it was read, by :func:`time.perf_counter`.
    """

    prompts: tuple[TextPrompt | ChatPrompt | ModelPrompt, ...]
    settings: RequestSettings
    stream: bool
    include_usage: bool = False
    echo: bool = False
    generates: bool = True
    follows: bool = False
    keep_alive: float | None = None
    unloads: bool = False
    reports_progress: bool = False
    begin: float = field(default_factory=perf_counter)


@dataclass(frozen=True, slots=True)
class PromptInfo:
    """Facts known when the prompts are tokenized.

    Attributes:
        dropped_messages: how many of a chat's oldest messages were left out, as they did not fit the context.
    """

    prompt_tokens: int
    dropped_messages: int


def dropped_field(messages: int) -> dict[str, int]:
    """A field of edgegen's own: how many of the oldest messages the model has not read."""
    return {"dropped_messages": messages} if messages else {}


@dataclass(frozen=True, slots=True)
class Event:
    """A piece of a stream; only server-sent events have names."""

    data: str
    name: str | None = None

    @classmethod
    def of(cls, content: Mapping[str, Any], name: str | None = None) -> "Event":
        return cls(json.dumps(content, ensure_ascii=False), name)


@dataclass(frozen=True, slots=True)
class StreamFormat:
    """How events are sent: the media type, and the text of an event.

    Attributes:
        keep_alive: the text that is sent while there are no events; empty where clients read none.
    """

    media: str
    text: Callable[[Event], str]
    keep_alive: str = ""


def _server_sent(event: Event) -> str:
    return f"event: {event.name}\ndata: {event.data}\n\n" if event.name else f"data: {event.data}\n\n"


SERVER_SENT = StreamFormat("text/event-stream; charset=utf-8", _server_sent, ": keep-alive\n\n")
JSON_LINES = StreamFormat("application/x-ndjson", lambda event: f"{event.data}\n")


class ResponseWriter(Protocol):
    """Writes one response: ``body``, or the events of ``begin``, of every ``chunk``, and of ``end`` or ``failed``."""

    def prepare(self, llm: LLM, options: GenerationOptions, cancel: CancelToken) -> None:
        """Work out what the answer needs beside what is generated; runs in a thread. A conversation is tokenized when
        it is submitted."""

    def begin(self, facts: PromptInfo) -> Iterable[Event]:
        return []

    def chunk(self, piece: GenerationChunk, prompt: int) -> Iterable[Event]:
        """The events of a piece of an answer to the prompt of that number."""
        return []

    def end(self, results: Sequence[GenerationResult]) -> Iterable[Event]:
        """``results``: of each prompt; none if nothing was generated."""
        return []

    def failed(self, error: ApiError) -> Iterable[Event]:
        """The last events of a stream that cannot go on."""
        return [Event.of(error.body)]

    def body(self, results: Sequence[GenerationResult]) -> Any: ...


@runtime_checkable
class ProgressWriter(Protocol):
    """A writer of streams that tell how much of each prompt has been read."""

    def progress(self, told: PromptProgress, prompt: int) -> Iterable[Event]:
        """The events of what has been read of the prompt of that number."""
        ...


@dataclass(frozen=True, slots=True)
class Wire:
    """The API of one path.

    Attributes:
        read: checks a body; runs in a thread, before any model is looked at, and raises an :class:`ApiError` where a
            parameter is unknown, not supported, of another type or beyond its limit.
        writer: of the response of the model of this name.
        error_body: of a response that is an error.
    """

    url: str
    read: Callable[[Mapping[str, Any]], WireRequest]
    writer: Callable[[str, WireRequest], ResponseWriter]
    error_body: Callable[[ApiError], dict[str, Any]] = lambda error: error.body
    stream_format: StreamFormat = SERVER_SENT
