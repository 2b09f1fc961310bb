"""Ollama's responses: an answer as one object, or as lines of objects, with its timings in nanoseconds."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from time import perf_counter
from typing import Any

from edgegen.chat.tools import ToolCall
from edgegen.generation.cancellation import CancelToken
from edgegen.generation.results import GenerationChunk, GenerationResult
from edgegen.llm import LLM
from edgegen.openai.answer import chat_logprobs, finish_reason
from edgegen.options.generation import GenerationOptions
from edgegen.server.http.api_error import ApiError
from edgegen.server.http.error_format import ollama_error
from edgegen.server.ollama.prompt import GeneratePrompt, Memory
from edgegen.server.wire.wire import Event, ResponseWriter, WireRequest, dropped_field


def timestamp(moment: datetime | None = None) -> str:
    """A time, by default now, as RFC 3339 has it."""
    moment = moment or datetime.now(UTC)
    return moment.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def nanoseconds(seconds: float) -> int:
    """Whole nanoseconds, at least one: clients divide by them."""
    return max(1, round(seconds * 1e9))


class OllamaWriter(ResponseWriter):
    """Base of both ways to generate. Models have the names that the client uses."""

    def __init__(self, model: str, asked: WireRequest) -> None:
        self._asked = asked
        self._model: str = asked.settings.body.get("model", model)
        self._loaded = perf_counter()
        self._calls = 0

    @abstractmethod
    def _said(self, text: str, thinking: str = "", calls: Sequence[ToolCall] = ()) -> dict[str, Any]:
        """Return a piece of the answer, in the API's form."""

    def _extra(self, result: GenerationResult) -> dict[str, Any]:
        """Return further fields of the last object."""
        return {}

    def chunk(self, piece: GenerationChunk, prompt: int) -> list[Event]:
        frames = list[dict[str, Any]]()
        if piece.reasoning_content:
            frames.append(self._said("", piece.reasoning_content))
        if piece.content or piece.logprobs:
            frames.append(self._said(piece.content) | _logprobs(piece))
        if piece.tool_calls:
            frames.append(self._said("", calls=piece.tool_calls))
        return [Event.of(self._frame() | said | {"done": False}) for said in frames]

    def end(self, results: Sequence[GenerationResult]) -> list[Event]:
        return [Event.of(self._frame() | self._said("") | self._ended(results[0]))]

    def failed(self, error: ApiError) -> list[Event]:
        return [Event.of(ollama_error(error))]

    def body(self, results: Sequence[GenerationResult]) -> dict[str, Any]:
        if not results:
            reason = "unload" if self._asked.unloads else "load"
            return self._frame() | self._said("") | {"done": True, "done_reason": reason}
        result = results[0]
        said = self._said(result.content, result.reasoning_content, result.tool_calls)
        return self._frame() | said | _logprobs(result) | self._ended(result)

    def _frame(self) -> dict[str, Any]:
        return {"model": self._model, "created_at": timestamp()}

    def _ended(self, result: GenerationResult) -> dict[str, Any]:
        timings, begin = result.timings, self._asked.begin
        return {
            "done": True,
            "done_reason": "length" if finish_reason(result.finish_reason) == "length" else "stop",
            **self._extra(result),
            **dropped_field(result.dropped_messages),
            "total_duration": nanoseconds(perf_counter() - begin),
            "load_duration": nanoseconds(self._loaded - begin),
            "prompt_eval_count": timings.prompt_tokens,
            "prompt_eval_duration": nanoseconds(timings.prompt_seconds),
            "eval_count": len(result.token_ids),
            "eval_duration": nanoseconds(timings.decode_seconds),
        }


class ChatWriter(OllamaWriter):
    def _said(self, text: str, thinking: str = "", calls: Sequence[ToolCall] = ()) -> dict[str, Any]:
        message: dict[str, Any] = {"role": "assistant", "content": text}
        if thinking:
            message["thinking"] = thinking
        if calls:
            message["tool_calls"] = [self._call(call) for call in calls]
        return {"message": message}

    def _call(self, call: ToolCall) -> dict[str, Any]:
        at, self._calls = self._calls, self._calls + 1
        return {"id": call.id, "function": {"index": at, "name": call.name, "arguments": call.arguments}}


class GenerateWriter(OllamaWriter):
    _memory: Memory | None = None

    def prepare(self, llm: LLM, options: GenerationOptions, cancel: CancelToken) -> None:
        """Keep what the next request's ``context`` is to tell; a raw prompt has none."""
        for prompt in self._asked.prompts:
            if isinstance(prompt, GeneratePrompt):
                self._memory = prompt.memory(llm)

    def _said(self, text: str, thinking: str = "", calls: Sequence[ToolCall] = ()) -> dict[str, Any]:
        return {"response": text, **({"thinking": thinking} if thinking else {})}

    def _extra(self, result: GenerationResult) -> dict[str, Any]:
        before = self._memory
        if before is None:
            return {}
        if before.messages:
            return {"context": replace(before, messages=(*before.messages, result.message)).context}
        return {"context": replace(before, text=before.text + result.text).context}


def _logprobs(said: GenerationChunk | GenerationResult) -> dict[str, Any]:
    found = chat_logprobs(said.logprobs)
    return {} if found is None else {"logprobs": found["content"]}
