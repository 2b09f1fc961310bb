"""Embeddings, and the models that are loaded and unloaded, as the OpenAPI document describes them."""

from edgegen.server.models.pull_order import SCHEMES
from edgegen.server.routes import model_routes
from edgegen.server.routes.catalogue_routes import CATALOGUE
from edgegen.server.wire import embeddings
from edgegen.server.wire.operation import JSON, Operation, posting
from edgegen.strict_json.schema import (
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
    nullable,
    object_of,
    ref,
)


def components() -> dict[str, Schema]:
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


def operations() -> list[Operation]:
    return [
        *(
            posting(path, "Embeddings of texts or token ids.", "EmbeddingsRequest", ref("EmbeddingList"))
            for path in ("/v1/embeddings", "/embeddings")
        ),
        Operation("get", "/models", "Which models are loaded, and the memory they take.", {JSON: ref("ModelStates")}),
        Operation(
            "get",
            CATALOGUE,
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
