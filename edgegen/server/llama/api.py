"""LlamaWire: llama-server's ``/completion``, ``/completions`` and ``/infill``."""

from collections.abc import Callable, Mapping
from typing import Any

from edgegen.server.http.api_error import ApiError
from edgegen.server.llama.request import read_completion, read_infill
from edgegen.server.llama.response import LlamaWriter
from edgegen.server.llama.schema import COMPLETION, COMPLETIONS, INFILL
from edgegen.server.wire.wire import SERVER_SENT, WireRequest


class LlamaWire:
    """One path, whose bodies ``read`` checks."""

    stream_format = SERVER_SENT

    def __init__(self, url: str, read: Callable[[Mapping[str, Any]], WireRequest]) -> None:
        self.url = url
        self._read = read

    def read(self, body: Mapping[str, Any]) -> WireRequest:
        return self._read(body)

    def writer(self, model: str, asked: WireRequest) -> LlamaWriter:
        return LlamaWriter(model, asked)

    def error_body(self, error: ApiError) -> dict[str, Any]:
        return error.body


LLAMA_WIRES = (
    LlamaWire(COMPLETION, read_completion),
    LlamaWire(COMPLETIONS, read_completion),
    LlamaWire(INFILL, read_infill),
)
