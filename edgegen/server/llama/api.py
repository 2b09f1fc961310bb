"""LlamaCompletion and LlamaInfill: llama-server's ``/completion`` and ``/infill``."""

from collections.abc import Mapping
from typing import Any

from edgegen.server.api_error import ApiError
from edgegen.server.llama.request import read_completion, read_infill
from edgegen.server.llama.response import LlamaWriter
from edgegen.server.llama.schema import COMPLETION, COMPLETIONS, INFILL
from edgegen.server.wire import SERVER_SENT, WireRequest


class LlamaCompletion:
    stream_format = SERVER_SENT

    def __init__(self, url: str = COMPLETION) -> None:
        self.url = url

    def read(self, body: Mapping[str, Any]) -> WireRequest:
        return read_completion(body)

    def writer(self, model: str, asked: WireRequest) -> LlamaWriter:
        return LlamaWriter(model, asked)

    def error_body(self, error: ApiError) -> dict[str, Any]:
        return error.body


class LlamaInfill:
    url = INFILL
    stream_format = SERVER_SENT

    def read(self, body: Mapping[str, Any]) -> WireRequest:
        return read_infill(body)

    def writer(self, model: str, asked: WireRequest) -> LlamaWriter:
        return LlamaWriter(model, asked)

    def error_body(self, error: ApiError) -> dict[str, Any]:
        return error.body


LLAMA_WIRES = (LlamaCompletion(), LlamaCompletion(COMPLETIONS), LlamaInfill())
