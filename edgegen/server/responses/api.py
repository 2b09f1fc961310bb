"""OpenAI's ``/v1/responses``, stateless, with tools and reasoning, whole or as its events."""

import time
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from edgegen.generation.cancellation import CancelToken
from edgegen.generation.results import GenerationChunk, GenerationResult
from edgegen.llm import LLM
from edgegen.openai.answer import finish_reason
from edgegen.options.generation import GenerationOptions
from edgegen.server.http.api_error import ApiError
from edgegen.server.responses.output import ResponseOutput
from edgegen.server.responses.request import parameters, read_request
from edgegen.server.responses.schema import RESPONSES
from edgegen.server.wire.wire import Event, PromptInfo, ResponseWriter, Wire, WireRequest, dropped_field

_PARAMS = {"messages": "input", "response_format": "text.format", "reasoning_effort": "reasoning.effort"}
"""Names here of the parameters that errors of the layers below speak of."""


def _error_body(error: ApiError) -> dict[str, Any]:
    told, param = error.body["error"], error.param
    if param is not None and error.code != "unknown_parameter":
        told["param"] = _PARAMS.get(param, param)
        told["message"] = error.message.replace("reasoning_effort:", "reasoning.effort:")
    return {"error": told}


class ResponsesWriter(ResponseWriter):
    def __init__(self, model: str, asked: WireRequest) -> None:
        self._asked = asked
        self._events = list[Event]()
        self._count = 0
        self._output = ResponseOutput(self._emit)
        self._response: dict[str, Any] = {
            "id": f"resp_{uuid.uuid4().hex}",
            "object": "response",
            "created_at": int(time.time()),
            "status": "in_progress",
            "completed_at": None,
            "error": None,
            "incomplete_details": None,
            "model": model,
            "output": self._output.items,
            "usage": None,
            **parameters(asked.settings.body),
        }

    def prepare(self, llm: LLM, options: GenerationOptions, cancel: CancelToken) -> None:
        """The options in effect, which the response tells."""
        self._response["temperature"] = options.temperature if options.do_sample else 0
        self._response["top_p"] = options.top_p if options.do_sample else 1
        self._response["top_logprobs"] = options.top_logprobs

    def begin(self, facts: PromptInfo) -> list[Event]:
        self._response |= dropped_field(facts.dropped_messages)
        for kind in ("response.created", "response.in_progress"):
            self._emit(kind, response=_without_usage(self._response))
        return self._taken()

    def chunk(self, piece: GenerationChunk, prompt: int) -> list[Event]:
        self._output.read(piece)
        return self._taken()

    def end(self, results: Sequence[GenerationResult]) -> list[Event]:
        response = self._finished(results[0])
        self._emit(f"response.{response['status']}", response=response)
        return self._taken()

    def failed(self, error: ApiError) -> list[Event]:
        told = _error_body(error)["error"]
        self._emit("error", code=error.code or error.kind, message=error.message, param=told["param"])
        code = "server_error" if error.status >= 500 else "invalid_prompt"
        self._output.abandon()
        self._response |= {"status": "failed", "error": {"code": code, "message": error.message}}
        self._emit("response.failed", response=_without_usage(self._response))
        return self._taken()

    def body(self, results: Sequence[GenerationResult]) -> dict[str, Any]:
        self._response |= dropped_field(results[0].dropped_messages)
        return self._finished(results[0])

    def _finished(self, result: GenerationResult) -> dict[str, Any]:
        """The response at its end, with its last item closed."""
        complete = finish_reason(result.finish_reason) != "length"
        self._output.close(complete=complete)
        timings, tokens = result.timings, len(result.token_ids)
        self._response["usage"] = {
            "input_tokens": timings.prompt_tokens,
            # Prefix caching costs no tokens, so none are counted as written.
            "input_tokens_details": {"cached_tokens": timings.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": tokens,
            "output_tokens_details": {"reasoning_tokens": min(self._output.reasoning_tokens, tokens)},
            "total_tokens": timings.prompt_tokens + tokens,
        }
        if complete:
            self._response |= {"status": "completed", "completed_at": int(time.time())}
        else:
            self._response |= {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
        return self._response

    def _emit(self, kind: str, **fields: Any) -> None:
        if self._asked.stream:
            self._events.append(Event.of({"type": kind, "sequence_number": self._count, **fields}, kind))
            self._count += 1

    def _taken(self) -> list[Event]:
        taken, self._events = self._events, list[Event]()
        return taken


RESPONSES_WIRE = Wire(RESPONSES, read_request, ResponsesWriter, _error_body)


def _without_usage(response: Mapping[str, Any]) -> dict[str, Any]:
    """A response whose tokens are not counted yet."""
    return {name: value for name, value in response.items() if name != "usage"}
