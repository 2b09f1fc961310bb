"""OpenAI's chat completions and completions, as the OpenAPI document describes them."""

from collections.abc import Mapping

from edgegen.batch.openai import ASKS_NOTHING, CHAT, COMPLETION, RENAMED, UNSUPPORTED
from edgegen.options.table import MOST_TOP_LOGPROBS
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
from edgegen.server.openapi.option_schemas import PROMPT_IDS, option_schemas
from edgegen.server.options import MOST_MESSAGES, MOST_PROMPTS, MOST_TOOLS

GENERATION_ERRORS = (400, 404, 408, 413, 500, 503)
"""Statuses of errors of an API that generates text."""

NOTHING: Schema = described(ANYTHING, "Accepted, as it changes no text.")


def shared_parameters() -> dict[str, Schema]:
    """Of chat completions and of completions; what they do not support may have the values that ask for nothing."""
    options = option_schemas()
    return {
        **options,
        **{name: described(options[option], f"OpenAI's name of {option}.") for name, option in RENAMED.items()},
        **dict.fromkeys(ASKS_NOTHING, NOTHING),
        **{name: enum(*values) for name, values in UNSUPPORTED.items()},
        "model": ref("ModelName"),
        "stream": described(BOOLEAN, "Answer with server-sent events, piece by piece."),
        "stream_options": ref("StreamOptions"),
    }


def _chat_request() -> Schema:
    own = {
        "tools": array_of(ref("Tool"), most=MOST_TOOLS),
        "tool_choice": ref("ToolChoice"),
        "parallel_tool_calls": described(BOOLEAN, "False: one call at most."),
    }
    given = parameters({**shared_parameters(), **own})
    return object_of({"messages": array_of(ref("ChatMessage"), 1, MOST_MESSAGES)}, given)


def _completion_request() -> Schema:
    prompt = any_of(STRING, PROMPT_IDS)
    several = array_of(prompt, 1, MOST_PROMPTS)
    shared = shared_parameters()
    own = {
        "echo": described(BOOLEAN, "The answer begins with the prompt."),
        "logprobs": described(
            any_of(BOOLEAN, {"type": "integer", "minimum": 0, "maximum": MOST_TOP_LOGPROBS}),
            "Log-probabilities of the tokens, and of so many alternatives at each position.",
        ),
        **{
            name: described({**shared[name], "minimum": 0}, "Most tokens of the answer; 0 goes with echo only.")
            for name in ("max_tokens", "max_completion_tokens", "max_new_tokens")
        },
    }
    return object_of({"prompt": any_of(STRING, PROMPT_IDS, several)}, parameters({**shared, **own}))


def _chat_message() -> Schema:
    name: Schema = {"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9_ -]*$"}
    part = object_of({"type": const("text"), "text": STRING}, more=True)
    said = object_of({"role": name, "content": any_of(STRING, array_of(part))}, more=True)
    # An assistant may have called tools or thought aloud in place of speaking.
    silent = {
        **object_of({"role": const("assistant")}, {"content": {"type": "null"}}, more=True),
        "anyOf": [{"required": [key]} for key in ("tool_calls", "reasoning_content", "function_call", "thinking")],
    }
    return any_of(said, silent)


def _tool() -> Schema:
    arguments = {"type": ["object", "null"], "properties": {"type": const("object")}}
    function = object_of(
        {"name": {"type": "string", "pattern": "^[A-Za-z0-9_.-]{1,128}$"}}, {"parameters": arguments}, more=True
    )
    return object_of({"type": const("function"), "function": function}, more=True)


def _chat_answers() -> dict[str, Schema]:
    call = object_of({"id": STRING, "type": const("function"), "function": ref("CalledFunction")})
    piece = object_of({"index": COUNT, "function": ref("CalledPiece")}, {"id": STRING, "type": const("function")})
    message = object_of(
        {"role": const("assistant"), "content": nullable(STRING), "refusal": {"type": "null"}},
        {"reasoning_content": STRING, "tool_calls": array_of(call, least=1)},
    )
    delta = object_of(
        {},
        {
            "role": const("assistant"),
            "content": nullable(STRING),
            "refusal": {"type": "null"},
            "reasoning_content": STRING,
            "tool_calls": array_of(piece, least=1),
        },
    )
    reason = enum("stop", "length", "tool_calls")
    dropped = {"dropped_messages": described(COUNT, "How many of the oldest messages did not fit the context.")}
    logprobs = nullable(ref("ChatLogprobs"))
    entry = {"token": STRING, "logprob": NUMBER, "bytes": array_of(COUNT)}
    return {
        "ChatCompletion": _frame(
            "chat.completion",
            object_of({"index": COUNT, "message": message, "logprobs": logprobs, "finish_reason": reason}),
            dropped,
        ),
        "ChatCompletionChunk": _chunk(
            "chat.completion.chunk",
            object_of({"index": COUNT, "delta": delta, "logprobs": logprobs, "finish_reason": nullable(reason)}),
            dropped,
        ),
        "ChatLogprobs": object_of(
            {
                "content": array_of(object_of({**entry, "top_logprobs": array_of(object_of(entry))})),
                "refusal": {"type": "null"},
            }
        ),
        "CalledFunction": object_of({"name": STRING, "arguments": STRING}),
        "CalledPiece": object_of({"arguments": STRING}, {"name": STRING}),
    }


def _completion_answers() -> dict[str, Schema]:
    reason = enum("stop", "length")
    logprobs = nullable(ref("CompletionLogprobs"))
    choice = {"text": STRING, "index": COUNT, "logprobs": logprobs}
    return {
        "Completion": _frame("text_completion", object_of({**choice, "finish_reason": reason})),
        "CompletionChunk": _chunk("text_completion", object_of({**choice, "finish_reason": nullable(reason)})),
        "CompletionLogprobs": object_of(
            {
                "tokens": array_of(STRING),
                "token_logprobs": array_of(nullable(NUMBER)),
                "top_logprobs": array_of(nullable(map_of(NUMBER))),
                "text_offset": array_of(COUNT),
            }
        ),
    }


def _frame(kind: str, choice: Schema, extra: Mapping[str, Schema] | None = None) -> Schema:
    head = {"id": STRING, "created": INTEGER, "model": STRING, "object": const(kind)}
    return object_of({**head, "choices": array_of(choice), "usage": ref("Usage")}, extra)


def _chunk(kind: str, choice: Schema, extra: Mapping[str, Schema] | None = None) -> Schema:
    head = {"id": STRING, "created": INTEGER, "model": STRING, "object": const(kind)}
    return object_of({**head, "choices": array_of(choice)}, {"usage": nullable(ref("Usage")), **(extra or {})})


def components() -> dict[str, Schema]:
    return {
        "ChatCompletionRequest": _chat_request(),
        "ChatMessage": _chat_message(),
        "CompletionRequest": _completion_request(),
        "StreamOptions": object_of(
            {}, {"include_usage": BOOLEAN, "include_obfuscation": described(ANYTHING, "Accepted; nothing is padded.")}
        ),
        "Tool": _tool(),
        "ToolChoice": any_of(
            enum("auto", "none", "required"),
            object_of({"type": const("function"), "function": object_of({"name": STRING}, more=True)}, more=True),
        ),
        "Usage": object_of(
            {
                **dict.fromkeys(("prompt_tokens", "completion_tokens", "total_tokens"), COUNT),
                "prompt_tokens_details": object_of({"cached_tokens": COUNT}),
            }
        ),
        **_chat_answers(),
        **_completion_answers(),
    }


def operations() -> list[Operation]:
    return [
        Operation(
            "post",
            CHAT,
            "The answer to a conversation.",
            {JSON: ref("ChatCompletion"), SSE: _stream("ChatCompletionChunk")},
            body=ref("ChatCompletionRequest"),
            errors=GENERATION_ERRORS,
            headers={"Edgegen-Dropped-Messages": "How many of the oldest messages did not fit the context."},
        ),
        Operation(
            "post",
            COMPLETION,
            "Continues a text, token ids, or several of either.",
            {JSON: ref("Completion"), SSE: _stream("CompletionChunk")},
            body=ref("CompletionRequest"),
            errors=GENERATION_ERRORS,
        ),
    ]


def _stream(chunk: str) -> Schema:
    return event("The last is [DONE]; before it there may be an error.", any_of(ref(chunk), ref("Error")))
