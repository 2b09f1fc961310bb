"""CatalogueRoutes: the models that can be pulled by name: sizes, licence, memory, and whether they are there."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from edgegen.bundle.catalogue import Offer, Size, catalogue
from edgegen.server.http.handler import answering
from edgegen.server.models.pull_order import SCHEMES
from edgegen.server.models.pulls import Pulls
from edgegen.server.models.served_models import ServedModels

CATALOGUE = "/models/catalogue"


class CatalogueRoutes:
    """Without ``pulls`` nothing can be pulled, and nothing is listed."""

    def __init__(self, models: ServedModels, pulls: Pulls | None) -> None:
        self._models = models
        self._pulls = pulls

    def routes(self) -> list[Route]:
        return [Route(CATALOGUE, answering(self.list))]

    async def list(self, request: Request) -> Response:
        """Each model with its bundles, whose names ``POST /api/pull`` accepts."""
        told = list[dict[str, Any]]()
        if self._pulls is not None:
            served = {model.name for model in await self._models.listed()}
            told = [_told(offer, served, self._pulls.models) for offer in catalogue()]
        return JSONResponse({"object": "list", "pulls_allowed": self._pulls is not None, "data": told})


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
