"""Schemas of ollama's API: requests are checked against them, and the OpenAPI document has them."""

from edgegen.server.http.error_format import OLLAMA
from edgegen.server.http.options import MOST_EMBEDDING_INPUTS, MOST_TOOLS
from edgegen.server.ollama.options import KEEP_ALIVE, OPTIONS
from edgegen.server.openai import schema as openai
from edgegen.server.wire.embeddings import TEXT
from edgegen.server.wire.operation import GENERATION_ERRORS, JSON, LINES, Operation, chatting, posting
from edgegen.server.wire.parameters import Parameters
from edgegen.server.wire.request_settings import OPTION_NAMES
from edgegen.server.wire.schemas import NOTHING, messages_of, option_schemas
from edgegen.strict_json.schema import (
    ADVICE,
    ANYTHING,
    BOOLEAN,
    COUNT,
    ELSEWHERE,
    INTEGER,
    NUMBER,
    OBJECT,
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
    object_of,
    parameters,
    ref,
)

CHAT, GENERATE, EMBED, EMBEDDINGS = f"{OLLAMA}chat", f"{OLLAMA}generate", f"{OLLAMA}embed", f"{OLLAMA}embeddings"
SHOW, PULL, DELETE = f"{OLLAMA}show", f"{OLLAMA}pull", f"{OLLAMA}delete"
REFUSED = {
    f"{OLLAMA}copy": "edgegen copies no models: a bundle is a folder, so copy it on the server's machine",
    f"{OLLAMA}create": "edgegen makes no models here: run `edgegen export` on the server's machine",
    f"{OLLAMA}push": "edgegen sends no models anywhere",
}
"""Paths that are known and do nothing here: why, or what to do."""

_UNREAD = advised({"type": "array", "maxItems": 0}, "models here read text only: leave it out")
_NO_TEXT = advised(enum(""), "leave it out")
_STREAM = described(BOOLEAN, "Answer with lines of JSON, piece by piece; true by default.")


def _generation() -> dict[str, Schema]:
    """Parameters that both ways to generate have."""
    options = option_schemas()
    form = any_of(enum("", "json"), map_of(ANYTHING))
    return {
        "model": ref("ModelName"),
        "stream": _STREAM,
        "format": described(expecting(form, "'json' or a JSON schema"), "What the text must be."),
        "options": ref("OllamaOptions"),
        "keep_alive": described(KEEP_ALIVE, "How long the model stays loaded; 0: no longer than for this."),
        "think": described(any_of(BOOLEAN, enum("low", "medium", "high", "max")), "Whether to think, or how hard."),
        "truncate": described(BOOLEAN, "False: a chat that does not fit the context is an error."),
        "shift": described(BOOLEAN, "Changes nothing: an answer ends where the context is full."),
        "logprobs": options["logprobs"],
        "top_logprobs": options["top_logprobs"],
    }


def _request(given: dict[str, Schema]) -> Schema:
    made = object_of({}, parameters(given))
    options = [name for name in (*OPTIONS["properties"], *OPTION_NAMES) if name not in given]
    return {**made, ELSEWHERE: dict.fromkeys(options, "it is one of options")}


def _chat() -> Schema:
    fields = {
        "messages": described(messages_of(ref("OllamaMessage"), least=None), "Without any, the model is loaded."),
        "tools": array_of(checked_later(ref("Tool")), most=MOST_TOOLS),
    }
    return _request({**_generation(), **fields})


def _generate() -> Schema:
    byte = {"type": "integer", "minimum": 0, "maximum": 255}
    pictures = advised(enum(), "models here write text only: leave it out")
    fields: dict[str, Schema] = {
        "prompt": described(STRING, "Without any, the model is loaded."),
        "suffix": described(STRING, "What comes after the text; for models with tokens for it."),
        "system": STRING,
        "template": advised(enum(""), "a request cannot bring a chat template: give messages, or a raw prompt"),
        "context": described(array_of(byte), "What an earlier answer has given: the conversation so far."),
        "raw": described(BOOLEAN, "Continue the prompt as it is, without the chat template."),
        "images": _UNREAD,
        **dict.fromkeys(("width", "height", "steps"), pictures),
    }
    return _request({**_generation(), **fields})


def _message() -> Schema:
    """Other keys, which ollama does not read, are left unread here too: clients send back what answers had."""
    function = object_of({"name": STRING, "arguments": OBJECT}, parameters({"index": INTEGER}), more=True)
    call = object_of({"function": function}, parameters({"id": STRING, "type": const("function")}), more=True)
    fields = {
        "content": STRING,
        "thinking": STRING,
        "images": _UNREAD,
        "tool_calls": array_of(call),
        "tool_name": STRING,
        "tool_call_id": STRING,
    }
    role: Schema = {"type": "string", "pattern": "^[A-Za-z][A-Za-z0-9_ -]*$"}
    return object_of({"role": role}, parameters(fields), more=True)


def _named(more: dict[str, Schema]) -> Schema:
    """A body that names a model, by either of two names."""
    text: Schema = {"type": "string", "minLength": 1}
    names = [{"required": [one], "properties": {one: text}} for one in ("model", "name")]
    given = {"model": any_of(ref("ModelName"), const("")), "name": any_of(ref("ModelName"), const("")), **more}
    return {
        **object_of({}, parameters(given)),
        "anyOf": names,
        ADVICE: "model is missing: the name of a model expected",
    }


def _embed() -> Schema:
    several = array_of(TEXT, most=MOST_EMBEDDING_INPUTS)
    shared = {"model": ref("ModelName"), "keep_alive": KEEP_ALIVE, "options": ref("OllamaOptions")}
    own = {
        "truncate": described(BOOLEAN, "False: a text that does not fit the context is an error."),
        "dimensions": {"type": "integer", "minimum": 1},
    }
    return object_of(
        {"input": expecting(any_of(STRING, several), "a text, or a list of texts")}, parameters({**shared, **own})
    )


def _embeddings() -> Schema:
    shared = {"model": ref("ModelName"), "keep_alive": KEEP_ALIVE, "options": ref("OllamaOptions")}
    return object_of({}, parameters({"prompt": STRING, **shared}))


_ASKED = {"stream": _STREAM, "insecure": NOTHING, "username": _NO_TEXT, "password": _NO_TEXT}

COMPONENTS: dict[str, Schema] = {
    "OllamaChatRequest": _chat(),
    "OllamaGenerateRequest": _generate(),
    "OllamaOptions": OPTIONS,
    "OllamaMessage": _message(),
    "OllamaEmbedRequest": _embed(),
    "OllamaEmbeddingsRequest": _embeddings(),
    "OllamaShowRequest": _named({"verbose": NOTHING, "system": _NO_TEXT, "template": _NO_TEXT, "options": NOTHING}),
    "OllamaPullRequest": _named(_ASKED),
    "OllamaDeleteRequest": _named({}),
}

_KNOWN = {**COMPONENTS, "Tool": openai.COMPONENTS["Tool"]}
CHAT_REQUEST = Parameters(CHAT, COMPONENTS["OllamaChatRequest"], _KNOWN)
GENERATE_REQUEST = Parameters(GENERATE, COMPONENTS["OllamaGenerateRequest"], _KNOWN)
EMBED_REQUEST = Parameters(EMBED, COMPONENTS["OllamaEmbedRequest"], _KNOWN)
EMBEDDINGS_REQUEST = Parameters(EMBEDDINGS, COMPONENTS["OllamaEmbeddingsRequest"], _KNOWN)
SHOW_REQUEST = Parameters(SHOW, COMPONENTS["OllamaShowRequest"], _KNOWN)
PULL_REQUEST = Parameters(PULL, COMPONENTS["OllamaPullRequest"], _KNOWN)
DELETE_REQUEST = Parameters(DELETE, COMPONENTS["OllamaDeleteRequest"], _KNOWN)


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
        chatting(
            CHAT,
            "The answer to a conversation, as ollama has it.",
            "OllamaChatRequest",
            {JSON: ref("OllamaChatAnswer"), LINES: ref("OllamaChatAnswer")},
            errors=(*GENERATION_ERRORS, 409),
            error=error,
        ),
        chatting(
            GENERATE,
            "The answer to a prompt, or its continuation, as ollama has it.",
            "OllamaGenerateRequest",
            {JSON: ref("OllamaGenerateAnswer"), LINES: ref("OllamaGenerateAnswer")},
            errors=(*GENERATION_ERRORS, 409),
            error=error,
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
