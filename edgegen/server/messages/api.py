"""Anthropic's ``/v1/messages``, and ``/v1/messages/count_tokens``: what a prompt has with the model's chat template and
its tools."""

from dataclasses import replace

from edgegen.server.http.error_format import COUNT_TOKENS, MESSAGES, message_error
from edgegen.server.messages.request import read_count, read_request
from edgegen.server.messages.response import PING, CountWriter, MessageWriter
from edgegen.server.wire.wire import SERVER_SENT, Wire

MESSAGE_WIRE = Wire(
    MESSAGES,
    read_request,
    MessageWriter,
    message_error,
    replace(SERVER_SENT, keep_alive=SERVER_SENT.text(PING)),
)

COUNT_WIRE = Wire(COUNT_TOKENS, read_count, CountWriter, message_error)
