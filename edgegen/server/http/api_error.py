"""ApiError: an error as OpenAI's API has it, with HTTP status, type, code and parameter."""

import logging
import re
from collections.abc import Mapping
from typing import Any

from starlette.responses import JSONResponse, Response

from edgegen.errors import (
    ConstraintError,
    ConversationError,
    EdgegenError,
    OptionLogitsError,
    PromptTooLongError,
    UsageError,
)

_LOG = logging.getLogger("edgegen.server")
_MOST_MESSAGE, _MOST_PARAM = 10_000, 200
"""Characters of what is told: messages repeat what a client has sent, which may be megabytes."""


class ApiError(Exception):
    """Error that is answered in place of a result."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        kind: str = "invalid_request_error",
        param: str | None = None,
        code: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        message = _cut(message, _MOST_MESSAGE)
        super().__init__(message)
        self.status = status
        self.message = message
        self.kind = kind
        self.param = None if param is None else _cut(param, _MOST_PARAM)
        self.code = code
        self.headers = headers

    @classmethod
    def of(cls, error: Exception) -> "ApiError":
        """An error of edgegen, or an unexpected one, whose traceback is logged and not told."""
        if isinstance(error, ApiError):
            return error
        if isinstance(error, PromptTooLongError):
            # "prompt is too long" is what langchain and litellm know a full context by.
            return cls(400, f"prompt is too long: {error}", code="context_length_exceeded")
        if isinstance(error, ConversationError):
            return cls(400, str(error), param=_about(error) or "messages")
        if isinstance(error, ConstraintError):
            return cls(400, str(error), param=_constraint(error))
        if isinstance(error, UsageError | OptionLogitsError):
            return cls(400, str(error), param=_about(error))
        if isinstance(error, EdgegenError):
            return cls(500, str(error), kind="server_error")
        if isinstance(error, MemoryError):
            _LOG.error("a request needed more memory than there is: %s", error)
            return cls.out_of_memory()
        _LOG.error("a request failed", exc_info=error)
        return cls(500, "the server failed on this request; its log says why.", kind="server_error")

    @classmethod
    def timed_out(cls, seconds: float, advice: str) -> "ApiError":
        """A request that took longer than it may; ``advice``: what makes it shorter."""
        said = f"the request took more than {seconds:g} seconds: {advice}, or try again later."
        return cls(503, said, kind="server_error", code="request_timeout", headers={"Retry-After": "1"})

    @classmethod
    def out_of_memory(cls) -> "ApiError":
        """A request for which there was not enough memory; others may be answered."""
        said = "there is not enough memory for this request: send less at once, or try again later."
        return cls(503, said, kind="server_error", code="out_of_memory", headers={"Retry-After": "5"})

    @property
    def body(self) -> dict[str, Any]:
        return {"error": {"message": self.message, "type": self.kind, "param": self.param, "code": self.code}}

    def response(self) -> Response:
        return JSONResponse(self.body, self.status, headers=self.headers)


def _constraint(error: Exception) -> str:
    """Which of the parameters that constrain an answer an error speaks of."""
    found = re.match(r"(?:a|the) (grammar)\b|the arguments of the (tool)\b", str(error))
    if found is None:
        return "response_format"
    return "grammar" if found[1] else "tools"


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]}…"


def _about(error: Exception) -> str | None:
    """Which of the parameters beside the messages an error of the conversation speaks of first."""
    found = re.match(r"(?:a )?(tool_choice|tools|thinking|reasoning_effort|variables)\b", str(error))
    return found[1] if found else None
