"""Model routes: which models are loaded, loading one, unloading one, and those that can be pulled by name."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from edgegen.bundle.catalogue import Offer, Size, catalogue
from edgegen.server.http.error_format import answering
from edgegen.server.http.json_body import read_json
from edgegen.server.models.pull_order import SCHEMES
from edgegen.server.models.pulls import Pulls
from edgegen.server.models.served_models import ServedModel, ServedModels
from edgegen.server.wire.parameters import Parameters
from edgegen.strict_json.schema import Schema, object_of, ref

REQUEST: Schema = object_of({"model": ref("ModelName")})
"""Body that names a model."""

CATALOGUE = "/models/catalogue"


class ModelRoutes:
    """``/models``, as llama-server's router has it, and the catalogue. Models have names; no client can name a path."""

    def __init__(self, models: ServedModels, pulls: Pulls | None) -> None:
        """``pulls``: None where nothing can be pulled; then the catalogue lists nothing."""
        self._models = models
        self._pulls = pulls

    def routes(self) -> list[Route]:
        return [
            Route("/models", answering(self.list)),
            Route("/models/load", answering(self.load), methods=["POST"]),
            Route("/models/unload", answering(self.unload), methods=["POST"]),
            Route(CATALOGUE, answering(self.catalogue)),
        ]

    async def list(self, request: Request) -> Response:
        """All models that can be served, and the memory that the loaded ones take."""
        listed = await self._models.listed()
        return JSONResponse(
            {
                "object": "list",
                "data": [self._state(model) for model in listed],
                "memory_bytes": self._models.memory,
                "memory_budget_bytes": self._models.budget,
            }
        )

    async def load(self, request: Request) -> Response:
        """Answers when the model is loaded."""
        with self._models.admitted():
            name = await _named(request)
            async with self._models.lease(name, load=True):
                pass
            return await self._done(name)

    async def unload(self, request: Request) -> Response:
        """Answers when the memory has been given back."""
        name = await _named(request)
        await self._models.unload(name)
        return await self._done(name)

    async def catalogue(self, request: Request) -> Response:
        """Models that can be pulled, each with its bundles, whose names ``POST /api/pull`` accepts."""
        told = []
        if self._pulls is not None:
            served = {model.name for model in await self._models.listed()}
            told = [_told(offer, served, self._pulls.models) for offer in catalogue()]
        return JSONResponse({"object": "list", "pulls_allowed": self._pulls is not None, "data": told})

    async def _done(self, name: str) -> Response:
        return JSONResponse({"success": True, "model": self._state(await self._models.find(name))})

    def _state(self, model: ServedModel) -> dict[str, Any]:
        status: dict[str, Any] = {"value": model.status}
        if model.problem is not None:
            status |= {"failed": True, "error": model.problem}
        return {
            **self._models.entry(model.name),
            "status": status,
            "memory_bytes": model.memory,
            "requests": model.users,
            "last_used": int(model.last_used) or None,
        }


async def _named(request: Request) -> str:
    """The model that the body names.

    Raises:
        ApiError: it names none.
    """
    return (await read_json(request, Parameters(request.url.path, REQUEST).read))["model"]


def _told(offer: Offer, served: set[str], pulled: set[str]) -> dict[str, Any]:
    sizes: dict[str, Size] = {"int8": offer.int8, "int4": offer.int4}
    return {
        "name": offer.name,
        "hub": offer.hub,
        "licence": offer.licence,
        "gated": offer.gated,
        "parameters": offer.parameters,
        "download_bytes": offer.download,
        "bundles": [
            {
                "model": (name := f"{offer.name}-{scheme}"),
                "quantization": scheme,
                "disk_bytes": sizes[scheme].bundle,
                "memory_bytes": sizes[scheme].memory,
                "installed": name in served,
                "pulling": name in pulled,
            }
            for scheme in SCHEMES
        ],
    }
