"""Schemas of OpenAI's chat completions and completions: requests are checked against them, and the OpenAPI document has
them.
"""

from collections.abc import Mapping

from edgegen.constraint import STRUCTURED_OUTPUT
from edgegen.openai.request import ASKS_NOTHING, RENAMED, RENAMED_THINKING
from edgegen.openai.schema import CHAT, CHAT_PARAMETERS, COMPLETION, UNSUPPORTED
from edgegen.options.generation import THINKING_OPTIONS
from edgegen.options.option import MOST_TOP_LOGPROBS
from edgegen.server.http.options import MOST_PROMPTS, MOST_TOOLS
from edgegen.server.wire.operation import DROPPED_COUNT, GENERATION_ERRORS, JSON, SSE, Operation, chatting, event
from edgegen.server.wire.parameters import Parameters
from edgegen.server.wire.ported_options import ported_schemas
from edgegen.server.wire.schemas import (
    NOTHING,
    PARALLEL_CALLS,
    PROMPT_IDS,
    STREAM,
    TOOL_NAME,
    messages_of,
    option_schemas,
)
from edgegen.strict_json.schema import (
    ANYTHING,
    BOOLEAN,
    COUNT,
    INTEGER,
    NUMBER,
    STRING,
    Schema,
    advised,
    any_of,
    array_of,
    checked_later,
    const,
    described,
    enum,
    expecting,
    map_of,
    nullable,
    object_of,
    parameters,
    ref,
)

_OPTIONS = option_schemas()


def _shared() -> dict[str, Schema]:
    """Of chat completions and of completions; what they do not support may have the values that ask for nothing."""
    other = checked_later(described(ANYTHING, "Another server's way to say what the text must be."))
    return {
        **{name: schema for name, schema in _OPTIONS.items() if name not in THINKING_OPTIONS},
        **{name: described(_OPTIONS[option], f"OpenAI's name of {option}.") for name, option in RENAMED.items()},
        **ported_schemas(_OPTIONS),
        **dict.fromkeys(sorted(STRUCTURED_OUTPUT), other),
        **dict.fromkeys(ASKS_NOTHING, NOTHING),
        **UNSUPPORTED,
        "model": ref("ModelName"),
        "stream": STREAM,
        "stream_options": ref("StreamOptions"),
    }


def _chat_request() -> Schema:
    fields = {
        **_shared(),
        **{name: _OPTIONS[name] for name in THINKING_OPTIONS},
        **{
            name: described(_OPTIONS[option], f"Another name of {option}.") for name, option in RENAMED_THINKING.items()
        },
        **{name: schema for name, schema in CHAT_PARAMETERS.items() if name not in UNSUPPORTED},
        "echo": advised(enum(False), f"it is a parameter of {COMPLETION}: leave it out"),
        "tools": array_of(checked_later(ref("Tool")), most=MOST_TOOLS),
        "tool_choice": ref("ToolChoice"),
        "parallel_tool_calls": PARALLEL_CALLS,
    }
    return object_of({"messages": messages_of(checked_later(ref("ChatMessage")))}, parameters(fields))


def _completion_request() -> Schema:
    several = array_of(any_of(STRING, PROMPT_IDS), 1, MOST_PROMPTS)
    prompt = expecting(any_of(STRING, PROMPT_IDS, several), "a text, a list of token ids, or a list of such prompts")
    tokens = described(
        {"type": "integer", "minimum": -1}, "Most tokens of the answer; -1: all that fit; 0 goes with echo only."
    )
    logprobs = described(
        any_of(BOOLEAN, {"type": "integer", "minimum": 0, "maximum": MOST_TOP_LOGPROBS}),
        "Log-probabilities of the tokens, and of so many alternatives at each position.",
    )
    fields = {
        "echo": described(BOOLEAN, "The answer begins with the prompt."),
        "suffix": described(STRING, "What comes after the text; for models with tokens for it (FIM)."),
        "logprobs": checked_later(logprobs),
        **dict.fromkeys(("max_tokens", "max_completion_tokens", "max_new_tokens"), checked_later(tokens)),
    }
    return object_of({"prompt": prompt}, parameters({**_shared(), **fields}))


def _chat_message() -> Schema:
    name: Schema = {"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9_ -]*$"}
    part = object_of({"type": const("text"), "text": STRING}, more=True)
    said = object_of({"role": name, "content": any_of(STRING, array_of(part))}, more=True)
    # An assistant may have called tools or thought aloud in place of speaking: any other key says so.
    role = {"role": const("assistant")}
    null = {**object_of({**role, "content": {"type": "null"}}, more=True), "minProperties": 3}
    silent = {**object_of(role, {"content": {"not": {}}}, more=True), "minProperties": 2}
    return any_of(said, null, silent)


def _tool() -> Schema:
    arguments = {"type": ["object", "null"], "properties": {"type": const("object")}}
    function = object_of({"name": TOOL_NAME}, {"parameters": arguments}, more=True)
    return object_of({"type": const("function"), "function": function}, more=True)


def _tool_choice() -> Schema:
    function = object_of({"name": STRING}, more=True)
    named = object_of({"type": const("function"), "function": function}, more=True)
    asked = "auto, none, required or {'type': 'function', 'function': {'name': …}}"
    return expecting(any_of(enum("auto", "none", "required"), named), asked)


COMPONENTS: dict[str, Schema] = {
    "ChatCompletionRequest": _chat_request(),
    "ChatMessage": _chat_message(),
    "CompletionRequest": _completion_request(),
    "StreamOptions": object_of(
        {}, {"include_usage": BOOLEAN, "include_obfuscation": described(ANYTHING, "Accepted; nothing is padded.")}
    ),
    "Tool": _tool(),
    "ToolChoice": _tool_choice(),
}
CHAT_REQUEST = Parameters(CHAT, COMPONENTS["ChatCompletionRequest"], COMPONENTS)
COMPLETION_REQUEST = Parameters(COMPLETION, COMPONENTS["CompletionRequest"], COMPONENTS)


_PROGRESS = {
    "prompt_progress": described(ref("LlamaPromptProgress"), "llama-server's, where return_progress asks for it.")
}
_TIMINGS = {"timings": described(ref("LlamaTimings"), "llama-server's, where timings_per_token asks for them.")}


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
    dropped = {"dropped_messages": DROPPED_COUNT}
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
    return object_of({**head, "choices": array_of(choice), "usage": ref("Usage")}, {**_TIMINGS, **(extra or {})})


def _chunk(kind: str, choice: Schema, extra: Mapping[str, Schema] | None = None) -> Schema:
    head = {"id": STRING, "created": INTEGER, "model": STRING, "object": const(kind)}
    more = {"usage": nullable(ref("Usage")), **_TIMINGS, **_PROGRESS, **(extra or {})}
    return object_of({**head, "choices": array_of(choice)}, more)


def components() -> dict[str, Schema]:
    return {
        **COMPONENTS,
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
        *(
            chatting(
                path,
                "The answer to a conversation.",
                "ChatCompletionRequest",
                {JSON: ref("ChatCompletion"), SSE: _stream("ChatCompletionChunk")},
            )
            for path in (CHAT, CHAT.removeprefix("/v1"))
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
