"""Schemas of ``/v1/responses``: requests are checked against them, and the OpenAPI document has them."""

from edgegen.options.option import EFFORTS
from edgegen.server.http.options import MOST_MESSAGES, MOST_TOOLS
from edgegen.server.wire.operation import DROPPED_COUNT, JSON, SSE, Operation, chatting, event
from edgegen.server.wire.parameters import Parameters
from edgegen.server.wire.schemas import PARALLEL_CALLS, STREAM, TOOL_ARGUMENTS, TOOL_NAME, option_schemas
from edgegen.strict_json.schema import (
    ANYTHING,
    BOOLEAN,
    COUNT,
    ELSEWHERE,
    INTEGER,
    NUMBER,
    STRING,
    Schema,
    advised,
    any_of,
    array_of,
    const,
    described,
    enum,
    expecting,
    map_of,
    nullable,
    object_of,
    parameters,
    ref,
    refused,
    text,
)

RESPONSES = "/v1/responses"

RENAMED = {
    "max_output_tokens": "max_new_tokens",
    "stop": "stop_strings",
    "text": "response_format",
    "truncation": "context_overflow",
}
"""Parameters that are options, and the name that each has here."""

INCLUDED_LOGPROBS = "message.output_text.logprobs"
_INCLUDABLE = (
    INCLUDED_LOGPROBS,
    "reasoning.encrypted_content",
    "file_search_call.results",
    "web_search_call.results",
    "web_search_call.action.sources",
    "message.input_image.image_url",
    "computer_call_output.output.image_url",
    "code_interpreter_call.outputs",
)
"""Parts that a response may include. Thoughts come in plain text, and the other items do not occur."""

_KEPT_NOWHERE = "this server keeps no responses: leave it out, and send the whole conversation as 'input'"
_REFUSED = {
    "previous_response_id": _KEPT_NOWHERE,
    "conversation": _KEPT_NOWHERE,
    "store": "this server keeps no responses: leave it out, or say false",
    "background": "this server keeps no responses to be fetched later: leave it out, or stream the answer",
    "prompt": "this server keeps no prompts: send 'instructions' and 'input'",
    "moderation": "nothing is moderated here: leave it out",
    "context_management": "nothing is compacted here: truncation 'auto' drops the oldest turns",
}
"""Unsupported parameters, and what to do; false asks for nothing."""

_ELSEWHERE = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "max_completion_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning",
    "enable_thinking": "thinking",
    "functions": "tools",
    "function_call": "tool_choice",
    "verbosity": "text",
}
"""Parameters of chat completions, and what says the same here."""


def _request() -> Schema:
    options = {name: schema for name, schema in option_schemas().items() if name not in _ELSEWHERE}
    whole = "thoughts come whole, not summarized: leave it out"
    unread = "the chat template decides: leave it out"
    reasoning = {
        "effort": enum(*EFFORTS),
        **dict.fromkeys(("summary", "generate_summary"), advised(enum("auto"), whole)),
        "context": advised(enum("auto"), unread),
        "mode": advised(enum("standard"), unread),
    }
    length = advised(enum("medium"), "leave it out, and say in 'instructions' how long to answer")
    fields: dict[str, Schema] = {
        **options,
        "num_return_sequences": advised(
            described(enum(1), "A response is one answer."), "a response is one answer: leave it out"
        ),
        **{
            name: described(options[RENAMED[name]], f"OpenAI's name of {RENAMED[name]}.")
            for name in ("max_output_tokens", "stop")
        },
        "text": object_of({}, parameters({"format": _format(), "verbosity": length})),
        "truncation": enum("auto", "disabled"),
        "model": ref("ModelName"),
        "instructions": STRING,
        "stream": STREAM,
        "stream_options": object_of({}, parameters({"include_obfuscation": BOOLEAN})),
        "tools": array_of(ref("ResponseTool"), most=MOST_TOOLS),
        "tool_choice": ref("ResponseToolChoice"),
        "parallel_tool_calls": PARALLEL_CALLS,
        "max_tool_calls": COUNT,  # of tools of the server's own, of which there are none
        "reasoning": object_of({}, parameters(reasoning)),
        "include": array_of(enum(*_INCLUDABLE)),
        **dict.fromkeys(("user", "prompt_cache_key"), text(512)),
        **dict.fromkeys(("safety_identifier", "prompt_cache_retention", "service_tier"), text(64)),
        "prompt_cache_options": {"type": "object", "maxProperties": 16},
        "metadata": {**map_of(text(512)), "propertyNames": text(64), "maxProperties": 16},
        "client_metadata": {"type": "object", "maxProperties": 64},  # Codex tells of itself
        **{name: advised(enum(False), advice) for name, advice in _REFUSED.items()},
    }
    asked = "a text or a list of items such as {'role': 'user', 'content': 'Hello'}"
    items = any_of(STRING, array_of(ref("ResponseItem"), 1, MOST_MESSAGES))
    elsewhere = {name: f"it is {here!r} here" for name, here in _ELSEWHERE.items()}
    return object_of({"input": expecting(items, asked)}, parameters(fields)) | {ELSEWHERE: elsewhere}


def _format() -> Schema:
    about = parameters({"description": STRING, "strict": BOOLEAN})
    name: Schema = {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,64}$"}
    named = object_of(
        {
            "type": const("json_schema"),
            "name": expecting(name, "1 to 64 letters, digits, _ and -"),
            "schema": ref("JsonSchema"),
        },
        about,
    )
    elsewhere = {"json_schema": "a json_schema has its schema at 'schema', beside 'type' and 'name'"}
    return any_of(
        object_of({"type": const("text")}),
        object_of({"type": const("json_object")}, {"schema": ANYTHING}),
        named | {ELSEWHERE: elsewhere},
    )


def _item() -> Schema:
    said = object_of({"type": enum("input_text", "output_text"), "text": STRING}, more=True)
    refusal = object_of({"type": const("refusal"), "refusal": STRING}, more=True)
    only = "only text is understood, as {'type': 'input_text', 'text': …}"
    content = any_of(STRING, array_of(advised(any_of(said, refusal), only)))
    thoughts = array_of(object_of({"text": STRING}, more=True))
    role = enum("user", "assistant", "system", "developer")
    call = {"type": const("function_call"), "call_id": STRING, "name": STRING}
    arguments = expecting({"type": ["string", "object", "null"]}, "an object as JSON text")
    output = {"type": const("function_call_output"), "call_id": STRING, "output": content}
    kept = refused(STRING, "this server keeps no items: send the item itself")
    return any_of(
        object_of({"role": role, "content": content}, {"type": const("message")}, more=True),
        object_of(call, {"arguments": arguments}, more=True),
        object_of(output, more=True),
        object_of({"type": const("reasoning")}, parameters({"content": thoughts, "summary": thoughts}), more=True),
        object_of({"id": kept}, {"type": const("item_reference")}, more=True),
    )


def _tool() -> Schema:
    fields = {"description": STRING, "parameters": TOOL_ARGUMENTS, "strict": BOOLEAN}
    unread = {"defer_loading": enum(False), "allowed_callers": enum([], ["direct"])}
    kind = advised(const("function"), "only tools of type 'function' are supported")
    elsewhere = {"function": "name, description and parameters stand beside 'type' here"}
    return object_of(
        {"type": kind, "name": TOOL_NAME},
        {
            **parameters({**fields, **{name: advised(one, "leave it out") for name, one in unread.items()}}),
            "output_schema": ANYTHING,
        },
    ) | {ELSEWHERE: elsewhere}


def _tool_choice() -> Schema:
    named = object_of({"type": const("function"), "name": STRING})
    allowed = {"type": const("allowed_tools"), "tools": array_of(object_of({"name": STRING}, more=True), 1)}
    return expecting(
        any_of(
            enum("auto", "none", "required"),
            named,
            object_of(allowed, parameters({"mode": enum("auto", "required")})),
        ),
        "auto, none, required or {'type': 'function', 'name': …}",
    )


COMPONENTS = {
    "ResponseRequest": _request(),
    "ResponseItem": _item(),
    "ResponseTool": _tool(),
    "ResponseToolChoice": _tool_choice(),
}
REQUEST = Parameters(RESPONSES, COMPONENTS["ResponseRequest"], COMPONENTS)


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
            "dropped_messages": DROPPED_COUNT,
        },
    )


def _output_item() -> Schema:
    common = {"id": STRING, "status": enum("completed", "incomplete")}
    text_part = object_of(
        {
            "type": const("output_text"),
            "text": STRING,
            "annotations": array_of(ANYTHING, most=0),
            "logprobs": array_of(map_of(ANYTHING)),
        }
    )
    thought = object_of({"type": const("reasoning_text"), "text": STRING})
    return any_of(
        object_of({**common, "type": const("message"), "role": const("assistant"), "content": array_of(text_part)}),
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
        **COMPONENTS,
        "Response": _response(),
        "OutputItem": _output_item(),
    }


def operations() -> list[Operation]:
    events = event("response.created, the items with their deltas, response.completed, incomplete or failed.")
    return [
        chatting(
            RESPONSES,
            "The answer to a conversation, as items.",
            "ResponseRequest",
            {JSON: ref("Response"), SSE: events},
        )
    ]
