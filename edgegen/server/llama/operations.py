"""llama-server's API, as the OpenAPI document describes it."""

from edgegen.server.llama.routes import LORA_ADAPTERS, RERANK, SLOTS
from edgegen.server.llama.schema import APPLY_TEMPLATE, COMPLETION, COMPLETIONS, COMPONENTS, EMBEDDING, INFILL
from edgegen.server.wire.operation import GENERATION_ERRORS, JSON, SSE, Operation, event, posting
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
    described,
    enum,
    map_of,
    object_of,
    ref,
)


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
