"""Messages and MessageTokens: Anthropic's ``/v1/messages`` and ``/v1/messages/count_tokens``."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from edgegen.server.http.api_error import ApiError
from edgegen.server.http.error_format import COUNT_TOKENS, MESSAGES, message_error
from edgegen.server.messages.request import hides_thoughts, read_count, read_request
from edgegen.server.messages.response import PING, CountWriter, MessageWriter
from edgegen.server.wire.wire import SERVER_SENT, WireRequest


class Messages:
    url = MESSAGES
    stream_format = replace(SERVER_SENT, keep_alive=SERVER_SENT.text(PING))

    def read(self, body: Mapping[str, Any]) -> WireRequest:
        return read_request(body)

    def writer(self, model: str, asked: WireRequest) -> MessageWriter:
        return MessageWriter(model, asked, hides_thoughts=hides_thoughts(asked.settings.body))

    def error_body(self, error: ApiError) -> dict[str, Any]:
        return message_error(error)


class MessageTokens:
    """Counts what a prompt has with the model's chat template and its tools."""

    url = COUNT_TOKENS
    stream_format = SERVER_SENT

    def read(self, body: Mapping[str, Any]) -> WireRequest:
        return read_count(body)

    def writer(self, model: str, asked: WireRequest) -> CountWriter:
        return CountWriter(asked)

    def error_body(self, error: ApiError) -> dict[str, Any]:
        return message_error(error)
