"""The shapes of errors: Anthropic's under ``/v1/messages``, ollama's under ``/api``, OpenAI's elsewhere."""

import re
import uuid
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Scope

from edgegen.server.http.api_error import ApiError
from edgegen.server.http.request_log import LoggedError, request_facts

MESSAGES, COUNT_TOKENS = "/v1/messages", "/v1/messages/count_tokens"

THREAD_UNSUPPORTED = "thread_unsupported_request"
"""The code of an error after which Anthropic's SDK sends the whole conversation without a thread."""

OLLAMA = "/api/"
"""Prefix of the paths of ollama's API."""

_KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
"""By HTTP status; below 500 any other is the client's, above it the server's."""

_NO_MODEL = re.compile(r"^no model named ('.*?'|\".*?\") is served")
_TOO_LONG = re.compile(r"has (\d+) tokens, .* (\d+): shorten it")


def message_error(error: ApiError) -> dict[str, Any]:
    """The body of ``error``. A prompt that is too long is told in the words that coding agents look for."""
    kind = _KINDS.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    if error.code == "request_timeout":
        kind = "timeout_error"
    text = error.message
    if error.code == "context_length_exceeded" and (found := _TOO_LONG.search(text)):
        text = f"prompt is too long: {found[1]} tokens > {found[2]} maximum"
    told: dict[str, Any] = {"type": kind, "message": text}
    if error.code == THREAD_UNSUPPORTED:
        told["details"] = {"error_code": THREAD_UNSUPPORTED}
    return {"type": "error", "error": told, "request_id": f"req_{uuid.uuid4().hex}"}


def ollama_error(error: ApiError) -> dict[str, Any]:
    """The body of ``error``. A model that is not there is told in the words that clients look for."""
    text = error.message
    if error.code == "model_not_found":
        text = _NO_MODEL.sub(r"model \1 not found", text)
    return {"error": text}


def error_response(error: ApiError, scope: Scope) -> Response:
    """The response to a request, in the shape of its path's API; the log learns of the error."""
    request_facts(scope).error = LoggedError.of(error.code, error.param)
    path: str = scope["path"]
    if path == MESSAGES or path.startswith(f"{MESSAGES}/"):
        return JSONResponse(message_error(error), error.status, headers=error.headers)
    if path.startswith(OLLAMA):
        return JSONResponse(ollama_error(error), error.status, headers=error.headers)
    return error.response()


Handler = Callable[[Request], Awaitable[Response]]


def answering(handler: Handler) -> Handler:
    """``handler``, with its errors as the API of the request's path has them."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except Exception as error:
            return error_response(ApiError.of(error), request.scope)

    return answer
