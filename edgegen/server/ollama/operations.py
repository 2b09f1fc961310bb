"""Ollama's API, as the OpenAPI document describes it."""

from edgegen.server.ollama.model_routes import REFUSED
from edgegen.server.ollama.schema import CHAT, COMPONENTS, DELETE, EMBED, EMBEDDINGS, GENERATE, OLLAMA, PULL, SHOW
from edgegen.server.wire.operation import GENERATION_ERRORS, JSON, LINES, Operation, posting
from edgegen.strict_json.schema import (
    ANYTHING,
    BOOLEAN,
    COUNT,
    NUMBER,
    STRING,
    Schema,
    any_of,
    array_of,
    const,
    described,
    enum,
    map_of,
    object_of,
    ref,
)

_DROPPED = {"Edgegen-Dropped-Messages": "How many of the oldest messages did not fit the context."}


def _answer(fields: dict[str, Schema], more: dict[str, Schema]) -> Schema:
    durations = dict.fromkeys(
        ("total_duration", "load_duration", "prompt_eval_duration", "eval_duration"), described(COUNT, "Nanoseconds.")
    )
    counts = {"prompt_eval_count": COUNT, "eval_count": COUNT, "dropped_messages": COUNT}
    entry = {"token": STRING, "logprob": NUMBER, "bytes": array_of(COUNT)}
    logprobs = array_of(object_of({**entry, "top_logprobs": array_of(object_of(entry))}))
    reason = enum("stop", "length", "load", "unload")
    return object_of(
        {"model": STRING, "created_at": STRING, "done": BOOLEAN, **fields},
        {"done_reason": reason, **durations, **counts, "logprobs": logprobs, **more},
    )


def components() -> dict[str, Schema]:
    function = object_of({"index": COUNT, "name": STRING, "arguments": map_of(ANYTHING)})
    call = object_of({"id": STRING, "function": function})
    message = object_of(
        {"role": const("assistant"), "content": STRING}, {"thinking": STRING, "tool_calls": array_of(call, least=1)}
    )
    words = ("parent_model", "format", "family", "parameter_size", "quantization_level")
    details = object_of({**dict.fromkeys(words, STRING), "families": array_of(STRING)})
    model = {"name": STRING, "model": STRING, "size": COUNT, "digest": STRING, "details": ref("OllamaDetails")}
    loaded = {**model, "size_vram": COUNT, "expires_at": STRING, "context_length": COUNT}
    texts = dict.fromkeys(("modelfile", "parameters", "template", "modified_at"), STRING)
    capabilities = array_of(enum("completion", "tools", "thinking", "embedding", "insert"))
    return {
        **COMPONENTS,
        "OllamaError": object_of({"error": described(STRING, "One sentence: what is wrong, and what to do.")}),
        "OllamaChatAnswer": _answer({"message": message}, {}),
        "OllamaGenerateAnswer": _answer({"response": STRING}, {"thinking": STRING, "context": array_of(COUNT)}),
        "OllamaEmbedAnswer": object_of(
            {
                "model": STRING,
                "embeddings": array_of(array_of(NUMBER)),
                **dict.fromkeys(("total_duration", "load_duration", "prompt_eval_count"), COUNT),
            }
        ),
        "OllamaEmbeddingsAnswer": object_of({"embedding": array_of(NUMBER)}),
        "OllamaDetails": details,
        "OllamaModels": object_of({"models": array_of(object_of({**model, "modified_at": STRING}))}),
        "OllamaLoaded": object_of({"models": array_of(object_of(loaded))}),
        "OllamaShown": object_of(
            {**texts, "details": ref("OllamaDetails"), "model_info": map_of(ANYTHING), "capabilities": capabilities}
        ),
        "OllamaStatus": object_of(
            {"status": STRING},
            {
                "digest": described(STRING, "sha256: and the hash of the file that is being downloaded."),
                "total": described(COUNT, "Bytes of that file; without digest, parts of the stage."),
                "completed": described(COUNT, "Those that are done."),
            },
        ),
    }


def operations() -> list[Operation]:
    error = ref("OllamaError")
    return [
        Operation(
            "post",
            CHAT,
            "The answer to a conversation, as ollama has it.",
            {JSON: ref("OllamaChatAnswer"), LINES: ref("OllamaChatAnswer")},
            body=ref("OllamaChatRequest"),
            errors=(*GENERATION_ERRORS, 409),
            error=error,
            headers=_DROPPED,
        ),
        Operation(
            "post",
            GENERATE,
            "The answer to a prompt, or its continuation, as ollama has it.",
            {JSON: ref("OllamaGenerateAnswer"), LINES: ref("OllamaGenerateAnswer")},
            body=ref("OllamaGenerateRequest"),
            errors=(*GENERATION_ERRORS, 409),
            error=error,
            headers=_DROPPED,
        ),
        *(
            posting(path, summary, f"Ollama{name}Request", ref(f"Ollama{name}Answer"), error=error)
            for path, name, summary in (
                (EMBED, "Embed", "Embeddings of texts, as ollama has them."),
                (EMBEDDINGS, "Embeddings", "The embedding of a text, as ollama's older API has it."),
            )
        ),
        Operation("get", f"{OLLAMA}tags", "The models that are served.", {JSON: ref("OllamaModels")}, error=error),
        Operation("get", f"{OLLAMA}ps", "The models that are loaded.", {JSON: ref("OllamaLoaded")}, error=error),
        Operation(
            "get",
            f"{OLLAMA}version",
            "The version of ollama whose API this is.",
            {JSON: object_of({"version": STRING})},
            error=error,
        ),
        posting(
            SHOW,
            "What a model is and can do.",
            "OllamaShowRequest",
            ref("OllamaShown"),
            (400, 404, 408, 413, 500),
            error,
        ),
        Operation(
            "post",
            PULL,
            "Pulls a model, where the server was started with --allow-pull; success, where it is served already.",
            {JSON: ref("OllamaStatus"), LINES: any_of(ref("OllamaStatus"), ref("OllamaError"))},
            body=ref("OllamaPullRequest"),
            errors=(400, 408, 409, 413, 500, 503),
            error=error,
        ),
        Operation(
            "delete",
            DELETE,
            "Deletes a bundle of the store.",
            {},
            body=ref("OllamaDeleteRequest"),
            errors=(400, 404, 408, 409, 413, 500),
            error=error,
        ),
        *(
            Operation("post", path, f"Refused: {why}.", None, errors=(400,), error=error)
            for path, why in REFUSED.items()
        ),
    ]
