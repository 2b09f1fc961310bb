"""OpenAI's responses, as the OpenAPI document describes them."""

from edgegen.server.openapi.openai import GENERATION_ERRORS
from edgegen.server.openapi.operation import (
    ANYTHING,
    BOOLEAN,
    COUNT,
    INTEGER,
    JSON,
    NUMBER,
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
from edgegen.server.responses.request import INCLUDABLE, REFUSED, RESPONSES


def _text(most: int) -> Schema:
    return {"type": "string", "maxLength": most}


def _request() -> Schema:
    options = option_schemas()
    named = object_of({"type": const("json_schema"), "name": STRING, "schema": ref("JsonSchema")}, more=True)
    form = any_of(object_of({"type": enum("text", "json_object")}, more=True), named)
    given: dict[str, Schema] = {
        **options,
        "num_return_sequences": described(enum(1), "A response is one answer."),
        **{name: described(options[option], f"OpenAI's name of {option}.") for name, option in _RENAMED.items()},
        "text": object_of({}, parameters({"format": form, "verbosity": enum("medium")})),
        "truncation": enum("auto", "disabled"),
        "model": ref("ModelName"),
        "instructions": STRING,
        "stream": described(BOOLEAN, "Answer with server-sent events, piece by piece."),
        "stream_options": object_of({}, parameters({"include_obfuscation": BOOLEAN})),
        "tools": array_of(ref("ResponseTool"), most=MOST_TOOLS),
        "tool_choice": ref("ResponseToolChoice"),
        "parallel_tool_calls": described(BOOLEAN, "False: one call at most."),
        "max_tool_calls": COUNT,
        "reasoning": object_of(
            {},
            parameters(
                {
                    "effort": enum("none", "minimal", "low", "medium", "high", "xhigh", "max"),
                    **dict.fromkeys(("summary", "generate_summary", "context"), enum("auto")),
                    "mode": enum("standard"),
                }
            ),
        ),
        "include": array_of(enum(*INCLUDABLE)),
        **dict.fromkeys(("user", "prompt_cache_key"), _text(512)),
        **dict.fromkeys(("safety_identifier", "prompt_cache_retention", "service_tier"), _text(64)),
        "prompt_cache_options": {"type": "object", "maxProperties": 16},
        "metadata": {**map_of(_text(512)), "propertyNames": {"maxLength": 64}, "maxProperties": 16},
        "client_metadata": {"type": "object", "maxProperties": 64},
        **dict.fromkeys(REFUSED, enum(False)),
    }
    items = array_of(ref("ResponseItem"), 1, MOST_MESSAGES)
    return object_of({"input": any_of(STRING, items)}, parameters(given))


_RENAMED = {"max_output_tokens": "max_new_tokens", "stop": "stop_strings"}


def _item() -> Schema:
    text = object_of({"type": enum("input_text", "output_text"), "text": STRING}, more=True)
    refusal = object_of({"type": const("refusal"), "refusal": STRING}, more=True)
    content = any_of(STRING, array_of(any_of(text, refusal)))
    thoughts = array_of(object_of({"text": STRING}, more=True))
    role = enum("user", "assistant", "system", "developer")
    call = {"type": const("function_call"), "call_id": STRING, "name": STRING, "arguments": STRING}
    output = {"type": const("function_call_output"), "call_id": STRING, "output": content}
    return any_of(
        object_of({"role": role, "content": content}, {"type": const("message")}, more=True),
        object_of(call, more=True),
        object_of(output, more=True),
        object_of({"type": const("reasoning")}, parameters({"content": thoughts, "summary": thoughts}), more=True),
    )


def _tool() -> Schema:
    schema = {"type": "object", "properties": {"type": const("object")}}
    direct: Schema = {"enum": [None, [], ["direct"]]}
    return object_of(
        {"type": const("function"), "name": {"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,128}$"}},
        {
            **parameters({"description": STRING, "parameters": schema, "strict": BOOLEAN}),
            "output_schema": ANYTHING,
            "defer_loading": {"enum": [False, None]},
            "allowed_callers": direct,
        },
    )


def _tool_choice() -> Schema:
    named = object_of({"type": const("function"), "name": STRING}, more=True)
    allowed = {"type": const("allowed_tools"), "tools": array_of(object_of({"name": STRING}, more=True), 1)}
    return any_of(
        enum("auto", "none", "required"),
        named,
        object_of(allowed, {"mode": enum("auto", "required")}, more=True),
    )


def _response() -> Schema:
    usage = object_of(
        {
            **dict.fromkeys(("input_tokens", "output_tokens", "total_tokens"), COUNT),
            "input_tokens_details": object_of({"cached_tokens": COUNT, "cache_write_tokens": COUNT}),
            "output_tokens_details": object_of({"reasoning_tokens": COUNT}),
        }
    )
    repeated: dict[str, Schema] = {
        "background": const(False),
        "instructions": nullable(STRING),
        "max_output_tokens": nullable(COUNT),
        "max_tool_calls": nullable(COUNT),
        "metadata": map_of(STRING),
        "parallel_tool_calls": BOOLEAN,
        "previous_response_id": {"type": "null"},
        "reasoning": object_of({"effort": nullable(STRING), "summary": {"type": "null"}}),
        "service_tier": STRING,
        "store": const(False),
        "temperature": NUMBER,
        "text": object_of({"format": map_of(ANYTHING)}),
        "tool_choice": any_of(STRING, map_of(ANYTHING)),
        "tools": array_of(map_of(ANYTHING)),
        "top_logprobs": COUNT,
        "top_p": NUMBER,
        "truncation": enum("auto", "disabled"),
    }
    return object_of(
        {
            "id": STRING,
            "object": const("response"),
            "created_at": INTEGER,
            "status": enum("completed", "incomplete"),
            "completed_at": nullable(INTEGER),
            "error": {"type": "null"},
            "incomplete_details": nullable(object_of({"reason": STRING})),
            "model": STRING,
            "output": array_of(ref("OutputItem")),
            "usage": usage,
            **repeated,
        },
        {
            **dict.fromkeys(("user", "safety_identifier", "prompt_cache_key"), STRING),
            "dropped_messages": described(COUNT, "How many of the oldest messages did not fit the context."),
        },
    )


def _output_item() -> Schema:
    common = {"id": STRING, "status": enum("completed", "incomplete")}
    said = object_of(
        {
            "type": const("output_text"),
            "text": STRING,
            "annotations": array_of(ANYTHING, most=0),
            "logprobs": array_of(map_of(ANYTHING)),
        }
    )
    thought = object_of({"type": const("reasoning_text"), "text": STRING})
    return any_of(
        object_of({**common, "type": const("message"), "role": const("assistant"), "content": array_of(said)}),
        object_of(
            {
                **common,
                "type": const("reasoning"),
                "summary": array_of(ANYTHING, most=0),
                "content": array_of(thought),
            }
        ),
        object_of({**common, "type": const("function_call"), "call_id": STRING, "name": STRING, "arguments": STRING}),
    )


def components() -> dict[str, Schema]:
    return {
        "ResponseRequest": _request(),
        "ResponseItem": _item(),
        "ResponseTool": _tool(),
        "ResponseToolChoice": _tool_choice(),
        "Response": _response(),
        "OutputItem": _output_item(),
    }


def operations() -> list[Operation]:
    events = event("response.created, the items with their deltas, response.completed, incomplete or failed.")
    return [
        Operation(
            "post",
            RESPONSES,
            "The answer to a conversation, as items.",
            {JSON: ref("Response"), SSE: events},
            body=ref("ResponseRequest"),
            errors=GENERATION_ERRORS,
            headers={"Edgegen-Dropped-Messages": "How many of the oldest messages did not fit the context."},
        )
    ]
