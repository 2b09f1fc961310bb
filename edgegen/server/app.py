"""create_app: the Starlette application of the server, with all its routes."""

from collections.abc import Mapping, Sequence

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from edgegen.errors import did_you_mean
from edgegen.llm import LLM
from edgegen.server.http.access import AccessGuard
from edgegen.server.http.api_error import ApiError
from edgegen.server.http.error_format import error_response
from edgegen.server.http.metrics import Metrics
from edgegen.server.http.options import ServerOptions
from edgegen.server.http.request_log import RequestLog
from edgegen.server.llama.api import EMBEDDING_WIRE, LLAMA_WIRES
from edgegen.server.llama.routes import LlamaRoutes
from edgegen.server.messages.api import COUNT_WIRE, MESSAGE_WIRE
from edgegen.server.models.pulls import Pulls
from edgegen.server.models.served_models import ModelSource, ServedModels
from edgegen.server.ollama.api import EMBED_WIRES, OLLAMA_WIRES
from edgegen.server.ollama.model_routes import OllamaRoutes
from edgegen.server.openai.chat_completions import CHAT_WIRE
from edgegen.server.openai.completions import COMPLETION_WIRE
from edgegen.server.openapi import openapi_route
from edgegen.server.page import page_routes
from edgegen.server.responses.api import RESPONSES_WIRE
from edgegen.server.routes.information import Information
from edgegen.server.routes.model_routes import ModelRoutes
from edgegen.server.wire.embeddings import EMBEDDINGS_WIRE, EmbeddingsEndpoint, EmbeddingsWire
from edgegen.server.wire.endpoint import GenerationEndpoint
from edgegen.server.wire.wire import Wire

WIRES: Sequence[Wire] = (
    CHAT_WIRE,
    COMPLETION_WIRE,
    RESPONSES_WIRE,
    MESSAGE_WIRE,
    COUNT_WIRE,
    *OLLAMA_WIRES,
    *LLAMA_WIRES,
)
"""The APIs that generate text."""

WITHOUT_VERSION: Mapping[str, Wire] = {"/chat/completions": CHAT_WIRE}
"""Paths that llama-server has without /v1 too; its /completions is its own."""

EMBEDDING_WIRES: Sequence[EmbeddingsWire] = (EMBEDDINGS_WIRE, *EMBED_WIRES, EMBEDDING_WIRE)
"""The APIs that make embeddings."""


def create_app(
    models: Mapping[str, LLM],
    options: ServerOptions,
    *,
    running: int = 8,
    source: ModelSource | None = None,
    pulls: Pulls | None = None,
) -> Starlette:
    """The application over ``models``, by the names that clients call them; the first is the default.

    ``running``: requests that one model runs together (``max_batch_size``). ``source``: what else can be loaded.
    ``pulls``: by which clients may have models pulled, into the store that ``source`` serves.
    """
    metrics = Metrics(lambda: served.requests, lambda: served.loaded)
    served = ServedModels(models, options, metrics, running=running, source=source)
    routes = [
        *(Route(wire.url, GenerationEndpoint(wire, served, options, metrics), methods=["POST"]) for wire in WIRES),
        *(
            Route(path, GenerationEndpoint(wire, served, options, metrics), methods=["POST"])
            for path, wire in WITHOUT_VERSION.items()
        ),
        *(
            Route(path, EmbeddingsEndpoint(wire, served, options, metrics), methods=["POST"])
            for wire in EMBEDDING_WIRES
            for path in (wire.url, *([wire.url.removeprefix("/v1")] if wire.url.startswith("/v1") else []))
        ),
        *Information(served, options, metrics, running=running).routes(),
        *ModelRoutes(served, pulls).routes(),
        *OllamaRoutes(served, options, pulls).routes(),
        *LlamaRoutes(served, running=running).routes(),
        *page_routes(),
        openapi_route(),
    ]
    paths = [route.path for route in routes]

    async def refuse(request: Request, error: Exception) -> Response:
        """Refuse an unknown path, or a method that a path has not."""
        status = error.status_code if isinstance(error, HTTPException) else 500
        path = request.url.path
        if status == 404:
            said = f"there is nothing at {path}{did_you_mean(path, paths)}."
            return error_response(ApiError(404, said, code="unknown_path"), request.scope)
        headers = error.headers if isinstance(error, HTTPException) else None
        said = f"{path} takes no {request.method}." if status == 405 else "the request is refused."
        code = "method_not_allowed" if status == 405 else None
        return error_response(ApiError(status, said, code=code, headers=headers), request.scope)

    return Starlette(
        routes=routes,
        middleware=[Middleware(RequestLog), *_cors(options), Middleware(AccessGuard, options=options)],
        exception_handlers={HTTPException: refuse},
    )


def _cors(options: ServerOptions) -> list[Middleware]:
    """The headers by which browsers let pages of other sites read answers, where some may.

    Keys are sent in headers, never as cookies, so that no page can use what it does not know.
    """
    if not options.allowed_origins:
        return []
    return [
        Middleware(
            CORSMiddleware,
            allow_origins=options.allowed_origins,
            allow_methods=("GET", "POST", "DELETE"),
            allow_headers=("*",),
            expose_headers=("Retry-After",),
        )
    ]
