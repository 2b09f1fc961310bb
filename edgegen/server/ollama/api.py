"""OllamaWire: ollama's ``/api/chat`` and ``/api/generate``."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from edgegen.server.http.api_error import ApiError
from edgegen.server.http.error_format import ollama_error
from edgegen.server.ollama.request import read_chat, read_generate
from edgegen.server.ollama.response import ChatWriter, GenerateWriter
from edgegen.server.ollama.schema import CHAT, GENERATE
from edgegen.server.wire.wire import JSON_LINES, WireRequest

_THINKING = re.compile(r"^(?:thinking|reasoning_effort): (True|False|'\w+')")
"""Begins the errors of the layers below about what is ``think`` here."""


class OllamaWire:
    """One path, whose bodies ``read`` checks and ``writer`` answers."""

    stream_format = JSON_LINES

    def __init__(
        self,
        url: str,
        read: Callable[[Mapping[str, Any]], WireRequest],
        writer: Callable[[str, WireRequest], ChatWriter | GenerateWriter],
    ) -> None:
        self.url = url
        self._read = read
        self._writer = writer

    def read(self, body: Mapping[str, Any]) -> WireRequest:
        return self._read(body)

    def writer(self, model: str, asked: WireRequest) -> ChatWriter | GenerateWriter:
        return self._writer(model, asked)

    def error_body(self, error: ApiError) -> dict[str, Any]:
        message = ollama_error(error)["error"]
        return {"error": _THINKING.sub(lambda match: f"think: {match[1].lower()}", message)}


OLLAMA_WIRES = (OllamaWire(CHAT, read_chat, ChatWriter), OllamaWire(GENERATE, read_generate, GenerateWriter))
