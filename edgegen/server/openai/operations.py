"""OpenAI's chat completions and completions, as the OpenAPI document describes them."""

from collections.abc import Mapping

from edgegen.openai.schema import CHAT, COMPLETION
from edgegen.server.openai.schema import COMPONENTS
from edgegen.server.wire.operation import GENERATION_ERRORS, JSON, SSE, Operation, event
from edgegen.strict_json.schema import (
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
            Operation(
                "post",
                path,
                "The answer to a conversation.",
                {JSON: ref("ChatCompletion"), SSE: _stream("ChatCompletionChunk")},
                body=ref("ChatCompletionRequest"),
                errors=GENERATION_ERRORS,
                headers={"Edgegen-Dropped-Messages": "How many of the oldest messages did not fit the context."},
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
