"""OllamaChat and OllamaGenerate: ollama's ``/api/chat`` and ``/api/generate``."""

import re
from collections.abc import Mapping
from typing import Any

from edgegen.server.http.api_error import ApiError
from edgegen.server.http.error_format import ollama_error
from edgegen.server.ollama.request import read_chat, read_generate
from edgegen.server.ollama.response import ChatWriter, GenerateWriter
from edgegen.server.ollama.schema import CHAT, GENERATE
from edgegen.server.wire.wire import JSON_LINES, WireRequest

_THINKING = re.compile(r"^(?:thinking|reasoning_effort): (True|False|'\w+')")
"""Begins the errors of the layers below about what is ``think`` here."""


class OllamaChat:
    url = CHAT
    stream_format = JSON_LINES

    def read(self, body: Mapping[str, Any]) -> WireRequest:
        return read_chat(body)

    def writer(self, model: str, asked: WireRequest) -> ChatWriter:
        return ChatWriter(model, asked)

    def error_body(self, error: ApiError) -> dict[str, Any]:
        return _error_body(error)


class OllamaGenerate:
    url = GENERATE
    stream_format = JSON_LINES

    def read(self, body: Mapping[str, Any]) -> WireRequest:
        return read_generate(body)

    def writer(self, model: str, asked: WireRequest) -> GenerateWriter:
        return GenerateWriter(model, asked)

    def error_body(self, error: ApiError) -> dict[str, Any]:
        return _error_body(error)


def _error_body(error: ApiError) -> dict[str, Any]:
    told = ollama_error(error)
    return {"error": _THINKING.sub(lambda found: f"think: {found[1].lower()}", told["error"])}
