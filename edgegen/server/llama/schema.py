"""Schemas of llama-server's API: requests are checked against them, and the OpenAPI document has them."""

from edgegen.server.http.options import MOST_PROMPTS, MOST_TOOLS
from edgegen.server.llama.options import completion_options
from edgegen.server.openai import schema as openai
from edgegen.server.wire.embeddings import INPUTS
from edgegen.server.wire.operation import GENERATION_ERRORS, JSON, SSE, Operation, event, posting
from edgegen.server.wire.parameters import Parameters
from edgegen.server.wire.ported_options import RETURN_PROGRESS
from edgegen.server.wire.schemas import PROMPT_IDS, STREAM, TOKEN_ID, messages_of
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
    described,
    enum,
    expecting,
    map_of,
    object_of,
    parameters,
    ref,
)

COMPLETION, INFILL, APPLY_TEMPLATE, EMBEDDING = "/completion", "/infill", "/apply-template", "/embedding"
COMPLETIONS = "/completions"
"""Another path of the same; OpenAI's is below /v1."""
SLOTS, LORA_ADAPTERS = "/slots", "/lora-adapters"
RERANK = ("/rerank", "/reranking", "/v1/rerank", "/v1/reranking")


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
    fields = {
        "model": ref("ModelName"),
        "tools": array_of(checked_later(ref("Tool")), most=MOST_TOOLS),
        **{name: openai.COMPONENTS["ChatCompletionRequest"]["properties"][name] for name in _OF_A_CHAT},
    }
    return object_of({"messages": messages_of(checked_later(ref("ChatMessage")))}, parameters(fields))


def _embedding() -> Schema:
    fields = {
        "content": INPUTS,
        "input": described(INPUTS, "Another name of content."),
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


def components() -> dict[str, Schema]:
    counts = dict.fromkeys(("cache_n", "prompt_n", "predicted_n"), COUNT)
    times = (
        "prompt_ms",
        "prompt_per_token_ms",
        "prompt_per_second",
        "predicted_ms",
        "predicted_per_token_ms",
        "predicted_per_second",
    )
    entry = {"id": COUNT, "token": STRING, "bytes": array_of(COUNT), "logprob": NUMBER}
    piece = {
        "index": COUNT,
        "content": STRING,
        "tokens": array_of(COUNT),
        "stop": BOOLEAN,
        "id_slot": INTEGER,
        "tokens_predicted": COUNT,
        "tokens_evaluated": COUNT,
        "timings": ref("LlamaTimings"),
        "prompt_progress": ref("LlamaPromptProgress"),
        "completion_probabilities": array_of(object_of({**entry, "top_logprobs": array_of(object_of(entry))})),
    }
    last = {
        "model": STRING,
        "generation_settings": map_of(ANYTHING),
        "prompt": STRING,
        "has_new_line": BOOLEAN,
        "truncated": BOOLEAN,
        "stop_type": enum("eos", "word", "limit"),
        "stopping_word": STRING,
        "tokens_cached": COUNT,
    }
    answer = described(
        {**object_of({}, {**piece, **last}), "additionalProperties": True}, "All fields, or those of response_fields."
    )
    slot = {"id": COUNT, "n_ctx": COUNT, "speculative": BOOLEAN, "is_processing": BOOLEAN}
    return {
        **COMPONENTS,
        "LlamaTimings": object_of({**counts, **dict.fromkeys(times, NUMBER)}),
        "LlamaPromptProgress": object_of({**dict.fromkeys(("total", "cache", "processed"), COUNT), "time_ms": NUMBER}),
        "LlamaAnswer": answer,
        "LlamaAnswers": any_of(ref("LlamaAnswer"), array_of(ref("LlamaAnswer"))),
        "LlamaEmbeddings": array_of(object_of({"index": COUNT, "embedding": array_of(array_of(NUMBER))})),
        "LlamaSlots": array_of(object_of(slot)),
    }


def operations() -> list[Operation]:
    streamed = event("A piece of the answer; the last one has stop.", ref("LlamaAnswer"))
    completions = (
        (COMPLETION, "Completion", "Continues a prompt, as llama-server has it."),
        (COMPLETIONS, "Completion", "Another path of /completion."),
        (INFILL, "Infill", "What stands between a prefix and a suffix (FIM)."),
    )
    return [
        *(
            Operation(
                "post",
                path,
                summary,
                {JSON: ref("LlamaAnswers"), SSE: streamed},
                body=ref(f"Llama{name}Request"),
                errors=GENERATION_ERRORS,
            )
            for path, name, summary in completions
        ),
        posting(
            APPLY_TEMPLATE,
            "The prompt that the chat template makes of messages.",
            "ApplyTemplateRequest",
            object_of({"prompt": STRING}),
        ),
        posting(
            EMBEDDING,
            "Embeddings of texts or token ids, as llama-server has them.",
            "LlamaEmbeddingRequest",
            ref("LlamaEmbeddings"),
        ),
        Operation("get", SLOTS, "The slots of the default model.", {JSON: ref("LlamaSlots")}, errors=(400,)),
        Operation(
            "get", LORA_ADAPTERS, "The adapter bundles, which are models by name.", {JSON: array_of(map_of(ANYTHING))}
        ),
        *(Operation("post", path, "Refused: no model here ranks texts.", None, errors=(400,)) for path in RERANK),
    ]
