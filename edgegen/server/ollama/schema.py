"""Schemas of ollama's API: requests are checked against them, and the OpenAPI document has them."""

from edgegen.server.http.error_format import OLLAMA
from edgegen.server.http.options import MOST_EMBEDDING_INPUTS, MOST_MESSAGES, MOST_TOOLS
from edgegen.server.ollama.options import KEEP_ALIVE, OPTIONS
from edgegen.server.openai import schema as openai
from edgegen.server.wire.parameters import Parameters
from edgegen.server.wire.request_settings import OPTION_NAMES
from edgegen.server.wire.schemas import NOTHING, option_schemas
from edgegen.strict_json.schema import (
    ADVICE,
    ANYTHING,
    BOOLEAN,
    ELSEWHERE,
    INTEGER,
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
    messages = expecting(
        array_of(ref("OllamaMessage"), most=MOST_MESSAGES),
        "a list of messages such as {'role': 'user', 'content': 'Hello'}",
    )
    fields = {
        "messages": described(messages, "Without any, the model is loaded."),
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
    text = expecting({"type": "string", "minLength": 1}, "a text that is not empty")
    several = array_of(text, most=MOST_EMBEDDING_INPUTS)
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
