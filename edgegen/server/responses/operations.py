"""OpenAI's responses, as the OpenAPI document describes them."""

from edgegen.server.responses.schema import COMPONENTS, RESPONSES
from edgegen.server.wire.operation import GENERATION_ERRORS, JSON, SSE, Operation, event
from edgegen.strict_json.schema import (
    ANYTHING,
    BOOLEAN,
    COUNT,
    INTEGER,
    NUMBER,
    STRING,
    Schema,
    any_of,
    array_of,
    const,
    described,
    enum,
    map_of,
    nullable,
    object_of,
    ref,
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
