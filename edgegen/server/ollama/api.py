"""Ollama's ``/api/chat`` and ``/api/generate``."""

import re
from typing import Any

from edgegen.server.http.api_error import ApiError
from edgegen.server.http.error_format import ollama_error
from edgegen.server.ollama.request import read_chat, read_generate
from edgegen.server.ollama.response import ChatWriter, GenerateWriter
from edgegen.server.ollama.schema import CHAT, GENERATE
from edgegen.server.wire.wire import JSON_LINES, Wire

_THINKING = re.compile(r"^(?:thinking|reasoning_effort): (True|False|'\w+')")
"""Begins the errors of the layers below about what is ``think`` here."""


def _error_body(error: ApiError) -> dict[str, Any]:
    message = ollama_error(error)["error"]
    return {"error": _THINKING.sub(lambda match: f"think: {match[1].lower()}", message)}


OLLAMA_WIRES = (
    Wire(CHAT, read_chat, ChatWriter, _error_body, JSON_LINES),
    Wire(GENERATE, read_generate, GenerateWriter, _error_body, JSON_LINES),
)
