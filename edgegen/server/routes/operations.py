"""The routes around the APIs, as the OpenAPI document describes them: models, embeddings, tokens, the web page."""

from edgegen.options.option import EFFORTS
from edgegen.server.models.pull_order import SCHEMES
from edgegen.server.page import MOST_RENDERED_TEXTS
from edgegen.server.routes import model_routes
from edgegen.server.routes.information import DETOKENIZE, TOKENIZE
from edgegen.server.wire import embeddings
from edgegen.server.wire.operation import HTML, JSON, TEXT, Operation, posting
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

_READ_ERRORS = (400, 404, 408, 413, 503)
"""Statuses of errors where a text or its tokens are read."""


def _information() -> dict[str, Schema]:
    figures = (
        "mean_kl", "max_kl", "top1_agreement", "perplexity", "perplexity_reference", "perplexity_change",
        "perplexity_change_error",
    )  # fmt: skip
    piece = object_of({"id": COUNT, "piece": any_of(STRING, array_of(COUNT))})
    abilities = ("chat", "completions", "logprobs", "response_format", "tools", "embeddings")
    return {
        "Model": object_of(
            {"id": STRING, "object": const("model"), "created": INTEGER, "owned_by": STRING},
            {
                "aliases": described(array_of(STRING), "Other names, by --alias."),
                "context_length": described(COUNT, "The longest text, prompt and answer together, in tokens."),
                "max_model_len": described(COUNT, "vLLM's name of context_length."),
                "capabilities": array_of(enum("completion", "tools", "thinking", "embedding", "insert")),
            },
        ),
        "ModelList": object_of({"object": const("list"), "data": array_of(ref("Model"))}),
        "TokenizeRequest": {
            **TOKENIZE,
            "anyOf": [
                {"properties": {one: STRING, other: {"type": "null"}}, "required": [one]}
                for one, other in (("content", "prompt"), ("prompt", "content"))
            ],
        },
        "Tokens": object_of(
            {"tokens": any_of(array_of(COUNT), array_of(piece)), "count": COUNT, "max_model_len": COUNT}
        ),
        "DetokenizeRequest": DETOKENIZE,
        "Text": object_of({"content": STRING}),
        "Props": object_of(
            {
                "model": STRING,
                "models": array_of(STRING),
                "version": STRING,
                "family": STRING,
                "parameters": COUNT,
                "quantization": STRING,
                "kv": STRING,
                "context": COUNT,
                "note": nullable(STRING),
                "max_tokens": COUNT,
                "chat_template": described(STRING, "The template's source; empty where the model has none."),
                "bos_token": STRING,
                "eos_token": STRING,
                "build_info": STRING,
                "model_alias": STRING,
                "model_path": STRING,
                "modalities": object_of({"vision": BOOLEAN, "audio": BOOLEAN}),
                "total_slots": COUNT,
                "default_generation_settings": object_of({"n_ctx": COUNT, "params": map_of(ANYTHING)}),
                "thinking": object_of({"switch": BOOLEAN, "efforts": array_of(enum(*EFFORTS)), "thinks": BOOLEAN}),
                "template_capabilities": map_of(ANYTHING),
                "capabilities": object_of(dict.fromkeys(abilities, BOOLEAN)),
                "generation_options": map_of(ANYTHING),
                "parity": object_of(
                    {
                        "text": STRING,
                        "tokens": COUNT,
                        "weights_bytes": COUNT,
                        "bundle_bytes": COUNT,
                        **dict.fromkeys(figures, nullable(NUMBER)),
                    }
                ),
            }
        ),
        "RenderRequest": object_of({"texts": array_of(STRING, most=MOST_RENDERED_TEXTS)}),
        "Rendered": object_of({"html": array_of(STRING)}),
    }


def _information_operations() -> list[Operation]:
    in_path = {"name": "model", "in": "path", "required": True, "schema": ref("ModelName")}
    in_query = {"name": "model", "in": "query", "required": False, "schema": ref("ModelName")}
    return [
        Operation("get", "/v1/models", "The models that are served.", {JSON: ref("ModelList")}),
        Operation(
            "get", "/v1/models/{model}", "One model.", {JSON: ref("Model")}, errors=(404,), parameters=(in_path,)
        ),
        Operation(
            "get",
            "/props",
            "What a model is and can do.",
            {JSON: ref("Props")},
            errors=(400, 404, 500),
            parameters=(in_query,),
        ),
        posting("/tokenize", "The token ids of a text.", "TokenizeRequest", ref("Tokens"), _READ_ERRORS),
        posting("/detokenize", "The text of token ids.", "DetokenizeRequest", ref("Text"), _READ_ERRORS),
        Operation("get", "/metrics", "Metrics for Prometheus.", {TEXT: STRING}),
        *(
            Operation("get", path, "Whether the server answers.", {JSON: object_of({"status": const("ok")})}, open=True)
            for path in ("/health", "/v1/health")
        ),
        Operation("get", "/openapi.json", "This document.", {JSON: map_of(ANYTHING)}),
        Operation(
            "get",
            "/",
            "The web page, for browsers; a line of text for others.",
            {HTML: STRING, TEXT: STRING},
            open=True,
        ),
        posting(
            "/render", "Markdown as safe HTML, for the web page.", "RenderRequest", ref("Rendered"), (400, 413, 415)
        ),
    ]


def _models() -> dict[str, Schema]:
    embedding = object_of(
        {
            "object": const("embedding"),
            "index": COUNT,
            "embedding": described(any_of(array_of(NUMBER), STRING), "Numbers, or the base64 of their float32 values."),
        }
    )
    status = object_of(
        {"value": enum("loaded", "loading", "unloading", "unloaded")}, {"failed": const(True), "error": STRING}
    )
    bundle = {
        "model": described(STRING, "The name by which it is pulled, and then served."),
        "quantization": enum(*SCHEMES),
        "disk_bytes": COUNT,
        "memory_bytes": described(COUNT, "Of running it with 4,096 tokens."),
        "installed": BOOLEAN,
        "pulling": BOOLEAN,
    }
    state = {"id": STRING, "object": const("model"), "created": INTEGER, "owned_by": STRING}
    return {
        "EmbeddingsRequest": embeddings.REQUEST,
        "EmbeddingList": object_of(
            {
                "object": const("list"),
                "data": array_of(embedding),
                "model": STRING,
                "usage": object_of({"prompt_tokens": COUNT, "total_tokens": COUNT}),
            }
        ),
        "ModelRequest": model_routes.REQUEST,
        "ModelState": object_of(
            {
                **state,
                "status": status,
                "memory_bytes": COUNT,
                "requests": described(COUNT, "Those that run on it, or wait for it."),
                "last_used": described(nullable(COUNT), "In seconds since 1970."),
            },
            {"aliases": array_of(STRING)},
        ),
        "ModelStates": object_of(
            {
                "object": const("list"),
                "data": array_of(ref("ModelState")),
                "memory_bytes": COUNT,
                "memory_budget_bytes": nullable(COUNT),
            }
        ),
        "Catalogue": object_of(
            {
                "object": const("list"),
                "pulls_allowed": described(BOOLEAN, "Whether the server was started with --allow-pull."),
                "data": array_of(ref("CatalogueModel")),
            }
        ),
        "CatalogueModel": object_of(
            {
                "name": STRING,
                "hub": described(STRING, "Its id on the hub."),
                "licence": STRING,
                "gated": described(BOOLEAN, "The hub wants its terms accepted, and a token of the server's."),
                "parameters": COUNT,
                "download_bytes": COUNT,
                "bundles": array_of(object_of(bundle)),
            }
        ),
        "ModelDone": object_of({"success": const(True), "model": ref("ModelState")}),
    }


def _model_operations() -> list[Operation]:
    return [
        *(
            posting(path, "Embeddings of texts or token ids.", "EmbeddingsRequest", ref("EmbeddingList"))
            for path in ("/v1/embeddings", "/embeddings")
        ),
        Operation("get", "/models", "Which models are loaded, and the memory they take.", {JSON: ref("ModelStates")}),
        Operation(
            "get",
            model_routes.CATALOGUE,
            "The models that can be pulled by name; none, where the server pulls no models.",
            {JSON: ref("Catalogue")},
        ),
        posting("/models/load", "Loads a model before it is needed.", "ModelRequest", ref("ModelDone")),
        posting(
            "/models/unload",
            "Gives the memory of a model back.",
            "ModelRequest",
            ref("ModelDone"),
            (400, 404, 408, 409, 413),
        ),
    ]


def components() -> dict[str, Schema]:
    return {**_models(), **_information()}


def operations() -> list[Operation]:
    return [*_model_operations(), *_information_operations()]
