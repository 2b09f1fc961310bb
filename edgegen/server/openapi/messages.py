"""Anthropic's messages and count_tokens, as the OpenAPI document describes them."""

from edgegen.server.messages.request import ASKS_NOTHING
from edgegen.server.messages_error import COUNT_TOKENS, MESSAGES
from edgegen.server.openapi.openai import GENERATION_ERRORS, NOTHING
from edgegen.server.openapi.operation import (
    ANYTHING,
    BOOLEAN,
    COUNT,
    JSON,
    SSE,
    STRING,
    Operation,
    Schema,
    any_of,
    array_of,
    const,
    described,
    enum,
    event,
    map_of,
    nullable,
    object_of,
    parameters,
    ref,
)
from edgegen.server.openapi.option_schemas import option_schemas
from edgegen.server.options import MOST_MESSAGES, MOST_TOOLS

_NOT_SUPPORTED: Schema = {"type": "array", "maxItems": 0}
_CACHE: dict[str, Schema] = {"cache_control": ANYTHING}


def _prompt() -> dict[str, Schema]:
    form = object_of({"type": const("json_schema"), "schema": map_of(ANYTHING)})
    effort = enum("low", "medium", "high", "xhigh", "max")
    return {
        "system": any_of(STRING, array_of(ref("TextBlock"))),
        "tools": array_of(ref("MessageTool"), most=MOST_TOOLS),
        "tool_choice": ref("MessageToolChoice"),
        "thinking": ref("Thinking"),
        "output_config": object_of({}, parameters({"format": form, "effort": effort})),
        "output_format": form,
        **dict.fromkeys(ASKS_NOTHING, NOTHING),
        **dict.fromkeys(("container", "mcp_servers", "compaction", "thread"), _NOT_SUPPORTED),
        "model": ref("ModelName"),
    }


def _request() -> Schema:
    options = option_schemas()
    one_answer = "A message is one answer without log-probabilities."
    given: dict[str, Schema] = {
        **options,
        **{name: described(enum(value), one_answer) for name, value in _ONE_ANSWER.items()},
        "max_tokens": options["max_new_tokens"],
        "stop_sequences": options["stop_strings"],
        "stream": described(BOOLEAN, "Answer with server-sent events, piece by piece."),
        **_prompt(),
    }
    whole = {"type": "integer"}
    # One of the two names has to be there; null is as if it were not.
    limits = [
        {"required": [one], "properties": {one: whole, other: {"type": "null"}}}
        for one, other in (("max_tokens", "max_new_tokens"), ("max_new_tokens", "max_tokens"))
    ]
    return {**object_of({"messages": _MESSAGES}, parameters(given)), "anyOf": limits}


_ONE_ANSWER = {"num_return_sequences": 1, "logprobs": False, "top_logprobs": 0}
_MESSAGES = array_of(ref("Message"), 1, MOST_MESSAGES)


def _blocks() -> dict[str, Schema]:
    use = {"type": const("tool_use"), "id": STRING, "name": STRING, "input": map_of(ANYTHING)}
    result = {"type": const("tool_result"), "tool_use_id": STRING}
    found = object_of({"type": const("tool_reference"), "tool_name": STRING}, _CACHE)
    told = any_of({"type": "null"}, STRING, array_of(any_of(ref("TextBlock"), found)))
    return {
        "TextBlock": object_of({"type": const("text"), "text": STRING}, {"citations": ANYTHING, **_CACHE}),
        "ThinkingBlock": object_of({"type": const("thinking"), "thinking": STRING}, {"signature": ANYTHING, **_CACHE}),
        "ToolUseBlock": object_of(use, {"caller": ANYTHING, "toolset_name": ANYTHING, **_CACHE}),
        "ToolResultBlock": object_of(
            result, {"content": told, "is_error": BOOLEAN, "toolset_name": ANYTHING, **_CACHE}
        ),
        "RedactedBlock": object_of({"type": const("redacted_thinking")}, {"data": ANYTHING, **_CACHE}),
    }


def _message() -> Schema:
    def said(*blocks: str) -> Schema:
        return any_of(STRING, array_of(any_of(*map(ref, blocks))))

    return any_of(
        object_of({"role": const("user"), "content": said("TextBlock", "ToolResultBlock")}),
        object_of(
            {
                "role": const("assistant"),
                "content": said("TextBlock", "ThinkingBlock", "RedactedBlock", "ToolUseBlock"),
            }
        ),
        object_of(
            {"role": const("system"), "content": said("TextBlock")}, {"clear_at": ANYTHING, "output_config": ANYTHING}
        ),
    )


def _tool() -> Schema:
    unread = ("cache_control", "strict", "defer_loading", "input_examples", "allowed_callers", "eager_input_streaming")
    return object_of(
        {
            "name": {"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,128}$"},
            "input_schema": {"type": "object", "properties": {"type": const("object")}},
        },
        {
            **dict.fromkeys(unread, ANYTHING),
            **parameters({"description": STRING, "type": enum("custom")}),
        },
    )


def _tool_choice() -> Schema:
    single = {"disable_parallel_tool_use": BOOLEAN}
    return any_of(
        object_of({"type": enum("auto", "any")}, single),
        object_of({"type": const("tool"), "name": STRING}, single),
        object_of({"type": const("none")}),
    )


def _thinking() -> Schema:
    shown: dict[str, Schema] = {
        "display": nullable(enum("summarized", "updates", "omitted")),
        "block_binding": ANYTHING,
    }
    return any_of(
        object_of({"type": const("enabled"), "budget_tokens": {"type": "integer", "minimum": 1024}}, shown),
        object_of({"type": const("adaptive")}, shown),
        object_of({"type": const("disabled")}),
    )


def components() -> dict[str, Schema]:
    counted = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens", "output_tokens")
    blocks = any_of(*map(ref, ("TextBlock", "ThinkingBlock", "ToolUseBlock")))
    reasons = ("end_turn", "stop_sequence", "max_tokens", "tool_use", "model_context_window_exceeded")
    error = object_of({"type": STRING, "message": STRING})
    return {
        "MessageRequest": _request(),
        "CountTokensRequest": object_of({"messages": _MESSAGES}, parameters(_prompt())),
        "Message": _message(),
        **_blocks(),
        "MessageTool": _tool(),
        "MessageToolChoice": _tool_choice(),
        "Thinking": _thinking(),
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
        Operation(
            "post",
            COUNT_TOKENS,
            "How many tokens a prompt has.",
            {JSON: ref("TokenCount")},
            body=ref("CountTokensRequest"),
            errors=GENERATION_ERRORS,
            error=ref("MessageError"),
        ),
    ]
