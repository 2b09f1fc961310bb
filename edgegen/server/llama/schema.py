"""Schemas of llama-server's API: requests are checked against them, and the OpenAPI document has them."""

from edgegen.server.http.options import MOST_EMBEDDING_INPUTS, MOST_MESSAGES, MOST_PROMPTS, MOST_TOOLS
from edgegen.server.llama.options import completion_options
from edgegen.server.openai import schema as openai
from edgegen.server.wire.parameters import Parameters
from edgegen.server.wire.ported_options import RETURN_PROGRESS
from edgegen.server.wire.schemas import PROMPT_IDS, STREAM, TOKEN_ID
from edgegen.strict_json.schema import (
    BOOLEAN,
    STRING,
    Schema,
    advised,
    any_of,
    array_of,
    checked_later,
    described,
    enum,
    expecting,
    object_of,
    parameters,
    ref,
)

COMPLETION, INFILL, APPLY_TEMPLATE, EMBEDDING = "/completion", "/infill", "/apply-template", "/embedding"
COMPLETIONS = "/completions"
"""Another path of the same; OpenAI's is below /v1."""


def _shared() -> dict[str, Schema]:
    return {
        **completion_options(),
        "model": ref("ModelName"),
        "stream": STREAM,
        "return_tokens": described(BOOLEAN, "Give the ids of the answer too."),
        "timings_per_token": described(BOOLEAN, "Give timings with each piece of a stream."),
        "return_progress": RETURN_PROGRESS,
        "response_fields": described(array_of(STRING), "Fields that the answer is cut to; a/b is the field b of a."),
    }


def _completion() -> Schema:
    mixed = array_of(any_of(TOKEN_ID, STRING), 1)
    several = array_of(any_of(STRING, PROMPT_IDS, mixed), 1, MOST_PROMPTS)
    prompt = expecting(any_of(STRING, mixed, several), "a text, a list of token ids and texts, or a list of prompts")
    return object_of({"prompt": prompt}, parameters(_shared()))


def _infill() -> Schema:
    extra = object_of({"text": STRING}, parameters({"filename": STRING}))
    fields = {
        "input_prefix": described(STRING, "What is before the text."),
        "input_suffix": described(STRING, "What comes after the text."),
        "input_extra": described(array_of(extra), "Other files, which the model reads first."),
        "prompt": described(STRING, "Goes on after input_prefix."),
    }
    return object_of({}, parameters({**_shared(), **fields}))


def _template() -> Schema:
    messages = array_of(checked_later(ref("ChatMessage")), 1, MOST_MESSAGES)
    fields = {
        "model": ref("ModelName"),
        "tools": array_of(checked_later(ref("Tool")), most=MOST_TOOLS),
        **{name: openai.COMPONENTS["ChatCompletionRequest"]["properties"][name] for name in _OF_A_CHAT},
    }
    asked = "a list of messages such as {'role': 'user', 'content': 'Hello'}"
    return object_of({"messages": expecting(messages, asked)}, parameters(fields))


def _embedding() -> Schema:
    text = expecting({"type": "string", "minLength": 1}, "a text that is not empty")
    inputs = any_of(text, PROMPT_IDS, array_of(any_of(text, PROMPT_IDS), 1, MOST_EMBEDDING_INPUTS))
    asked = expecting(inputs, "a text, a list of token ids, or a list of such inputs")
    fields = {
        "content": asked,
        "input": described(asked, "Another name of content."),
        "model": ref("ModelName"),
        "embd_normalize": advised(
            described(enum(-1, 2), "2: vectors of the length 1; -1: as they are."), "there is no other normalization"
        ),
    }
    return object_of({}, parameters(fields))


_OF_A_CHAT = ("chat_template_kwargs", "add_generation_prompt", "continue_final_message")

COMPONENTS: dict[str, Schema] = {
    "LlamaCompletionRequest": _completion(),
    "LlamaInfillRequest": _infill(),
    "ApplyTemplateRequest": _template(),
    "LlamaEmbeddingRequest": _embedding(),
}
_KNOWN = {**openai.COMPONENTS, **COMPONENTS}
COMPLETION_REQUEST = Parameters(COMPLETION, COMPONENTS["LlamaCompletionRequest"], _KNOWN)
INFILL_REQUEST = Parameters(INFILL, COMPONENTS["LlamaInfillRequest"], _KNOWN)
EMBEDDING_REQUEST = Parameters(EMBEDDING, COMPONENTS["LlamaEmbeddingRequest"], _KNOWN)
TEMPLATE_REQUEST = Parameters(APPLY_TEMPLATE, COMPONENTS["ApplyTemplateRequest"], _KNOWN)
