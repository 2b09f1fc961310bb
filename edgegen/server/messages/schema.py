"""Schemas of ``/v1/messages`` and its counting of tokens: requests are checked against them, and the OpenAPI document
has them.
"""

from edgegen.server.http.error_format import COUNT_TOKENS, MESSAGES
from edgegen.server.http.options import MOST_TOOLS
from edgegen.server.wire.operation import DROPPED_COUNT, JSON, SSE, Operation, chatting, event, posting
from edgegen.server.wire.parameters import Parameters
from edgegen.server.wire.schemas import NOTHING, STREAM, TOOL_ARGUMENTS, TOOL_NAME, messages_of, option_schemas
from edgegen.strict_json.schema import (
    ADVICE,
    ANYTHING,
    BOOLEAN,
    COUNT,
    OBJECT,
    STRING,
    Schema,
    advised,
    any_of,
    array_of,
    const,
    described,
    enum,
    expecting,
    nullable,
    object_of,
    parameters,
    ref,
    refused,
)

RENAMED = {"max_tokens": "max_new_tokens", "stop_sequences": "stop_strings"}
"""Parameters that are options, and the name that each has here."""

_ASKS_NOTHING = (
    "metadata",
    "cache_control",  # prefix caching needs none
    "context_management",
    "service_tier",
    "speed",
    "inference_geo",
    "user_profile_id",
    "workspace_id",
    "diagnostics",
    "billing_policy",
    "fallbacks",
    "fallback_credit_token",
    "betas",
)
_UNSUPPORTED = ("container", "mcp_servers", "compaction")
_ONE_ANSWER = {"num_return_sequences": 1, "logprobs": False, "top_logprobs": 0}
"""Options that a message has no place for, with the value that asks for nothing."""

_LEAST_BUDGET = 1024
"""Tokens that ``thinking`` may be given at least, by Anthropic's rule."""

_CACHE: dict[str, Schema] = {"cache_control": ANYTHING}
_MESSAGES = messages_of(ref("Message"))


def _prompt() -> dict[str, Schema]:
    form = object_of({"type": const("json_schema"), "schema": expecting(OBJECT, "a JSON schema")})
    return {
        "system": _said("TextBlock"),
        "tools": array_of(ref("MessageTool"), most=MOST_TOOLS),
        "tool_choice": ref("MessageToolChoice"),
        "thinking": ref("Thinking"),
        "output_config": object_of(
            {}, parameters({"format": form, "effort": enum("low", "medium", "high", "xhigh", "max")})
        ),
        "output_format": form,  # its older name
        **dict.fromkeys(_ASKS_NOTHING, NOTHING),
        **dict.fromkeys(_UNSUPPORTED, advised({"type": "array", "maxItems": 0}, "leave it out")),
        "thread": described(enum(), "Refused with the error code by which Anthropic's SDK goes on without it."),
        "model": ref("ModelName"),
    }


def _request() -> Schema:
    options = option_schemas()
    one_answer = "A message is one answer without log-probabilities."
    leave = "a message is one answer without log-probabilities: leave it out"
    fields: dict[str, Schema] = {
        **options,
        **{name: advised(described(enum(value), one_answer), leave) for name, value in _ONE_ANSWER.items()},
        "max_tokens": described({"type": "integer", "minimum": 1}, "Most tokens to generate."),
        "stop_sequences": options["stop_strings"],
        "stream": STREAM,
        **_prompt(),
    }
    # One of the two names has to be there; null is as if it were not.
    there = {"not": enum(None)}
    limits = [{"required": [one], "properties": {one: there}} for one in ("max_tokens", "max_new_tokens")]
    missing = "max_tokens is missing: say how many tokens the answer may have"
    return {**object_of({"messages": _MESSAGES}, parameters(fields)), "anyOf": limits, ADVICE: missing}


def _said(*blocks: str) -> Schema:
    """Text, or blocks of these kinds."""
    unread = refused(enum("image", "document"), "models here read text only: leave it out")
    block = any_of(*map(ref, blocks), object_of({"type": unread}, more=True))
    return any_of(STRING, expecting(array_of(block), "a list of content blocks"))


def _blocks() -> dict[str, Schema]:
    use = {"type": const("tool_use"), "id": STRING, "name": STRING, "input": OBJECT}
    result = {"type": const("tool_result"), "tool_use_id": STRING}
    told = {"content": nullable(_said("TextBlock", "ToolReference")), "is_error": BOOLEAN, "toolset_name": ANYTHING}
    return {
        "TextBlock": object_of({"type": const("text"), "text": STRING}, {"citations": ANYTHING, **_CACHE}),
        "ThinkingBlock": object_of({"type": const("thinking"), "thinking": STRING}, {"signature": ANYTHING, **_CACHE}),
        "ToolUseBlock": object_of(use, {"caller": ANYTHING, "toolset_name": ANYTHING, **_CACHE}),
        "ToolResultBlock": object_of(result, {**told, **_CACHE}),
        "ToolReference": object_of({"type": const("tool_reference"), "tool_name": STRING}, _CACHE),
        "RedactedBlock": object_of({"type": const("redacted_thinking")}, {"data": ANYTHING, **_CACHE}),
    }


def _message() -> Schema:
    answered = _said("TextBlock", "ThinkingBlock", "RedactedBlock", "ToolUseBlock")
    unread = {"clear_at": ANYTHING, "output_config": ANYTHING}
    return any_of(
        object_of({"role": const("user"), "content": _said("TextBlock", "ToolResultBlock")}),
        object_of({"role": const("assistant"), "content": answered}),
        object_of({"role": const("system"), "content": _said("TextBlock")}, unread),
    )


def _tool() -> Schema:
    unread = ("cache_control", "strict", "defer_loading", "input_examples", "allowed_callers", "eager_input_streaming")
    kind = advised(enum("custom"), "only custom tools, with an input_schema, are supported")
    told = {**dict.fromkeys(unread, ANYTHING), **parameters({"description": STRING, "type": kind})}
    tool = object_of({"name": TOOL_NAME, "input_schema": TOOL_ARGUMENTS}, told)
    return expecting(tool, "a tool such as {'name': …, 'input_schema': {…}}")


def _tool_choice() -> Schema:
    single = {"disable_parallel_tool_use": nullable(BOOLEAN)}
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
    budget = {"type": "integer", "minimum": _LEAST_BUDGET}
    return any_of(
        object_of({"type": const("enabled"), "budget_tokens": budget}, shown),
        object_of({"type": const("adaptive")}, shown),
        object_of({"type": const("disabled")}),
    )


COMPONENTS: dict[str, Schema] = {
    "MessageRequest": _request(),
    "CountTokensRequest": object_of({"messages": _MESSAGES}, parameters(_prompt())),
    "Message": _message(),
    **_blocks(),
    "MessageTool": _tool(),
    "MessageToolChoice": _tool_choice(),
    "Thinking": _thinking(),
}
REQUEST = Parameters(MESSAGES, COMPONENTS["MessageRequest"], COMPONENTS)
COUNT_REQUEST = Parameters(COUNT_TOKENS, COMPONENTS["CountTokensRequest"], COMPONENTS)


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
                "dropped_messages": DROPPED_COUNT,
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
        chatting(
            MESSAGES,
            "The answer to a conversation, as Anthropic's API has it.",
            "MessageRequest",
            {JSON: ref("MessageAnswer"), SSE: events},
            error=ref("MessageError"),
        ),
        posting(
            COUNT_TOKENS,
            "How many tokens a prompt has.",
            "CountTokensRequest",
            ref("TokenCount"),
            error=ref("MessageError"),
        ),
    ]
