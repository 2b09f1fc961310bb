"""Anthropic's messages and count_tokens, as the OpenAPI document describes them."""

from edgegen.server.http.error_format import COUNT_TOKENS, MESSAGES
from edgegen.server.messages.schema import COMPONENTS
from edgegen.server.wire.operation import GENERATION_ERRORS, JSON, SSE, Operation, event, posting
from edgegen.strict_json.schema import (
    ANYTHING,
    COUNT,
    STRING,
    Schema,
    any_of,
    array_of,
    const,
    described,
    enum,
    nullable,
    object_of,
    ref,
)


def components() -> dict[str, Schema]:
    counted = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    blocks = any_of(*map(ref, ("TextBlock", "ThinkingBlock", "ToolUseBlock")))
    reasons = ("end_turn", "stop_sequence", "max_tokens", "tool_use", "model_context_window_exceeded")
    error = object_of({"type": STRING, "message": STRING})
    return {
        **COMPONENTS,
        "MessageAnswer": object_of(
            {
                "id": STRING,
                "type": const("message"),
                "role": const("assistant"),
                "model": STRING,
                "content": array_of(blocks),
                "stop_reason": enum(*reasons),
                "stop_sequence": nullable(STRING),
                "usage": object_of(dict.fromkeys(counted, COUNT)),
            },
            {
                "context_management": object_of({"applied_edits": array_of(ANYTHING, most=0)}),
                "dropped_messages": described(COUNT, "How many of the oldest messages did not fit the context."),
            },
        ),
        "TokenCount": object_of(
            {"input_tokens": COUNT}, {"context_management": object_of({"original_input_tokens": COUNT})}
        ),
        "MessageError": object_of({"type": const("error"), "error": error, "request_id": STRING}),
    }


def operations() -> list[Operation]:
    events = event("message_start, the content blocks with their deltas, message_delta, message_stop; or error.")
    return [
        Operation(
            "post",
            MESSAGES,
            "The answer to a conversation, as Anthropic's API has it.",
            {JSON: ref("MessageAnswer"), SSE: events},
            body=ref("MessageRequest"),
            errors=GENERATION_ERRORS,
            error=ref("MessageError"),
            headers={"Edgegen-Dropped-Messages": "How many of the oldest messages did not fit the context."},
        ),
        posting(
            COUNT_TOKENS,
            "How many tokens a prompt has.",
            "CountTokensRequest",
            ref("TokenCount"),
            error=ref("MessageError"),
        ),
    ]
