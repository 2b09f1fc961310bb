"""Model routes: which models are loaded, loading one before it is needed, and unloading one."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from edgegen.server.http.handler import answering
from edgegen.server.http.json_body import read_json
from edgegen.server.models.served_models import ServedModel, ServedModels
from edgegen.server.wire.parameters import Parameters
from edgegen.strict_json.schema import Schema, object_of, ref

REQUEST: Schema = object_of({"model": ref("ModelName")})
"""Body that names a model."""


class ModelRoutes:
    """``/models``, as llama-server's router has it. Models have names; no client can name a path."""

    def __init__(self, models: ServedModels) -> None:
        self._models = models

    def routes(self) -> list[Route]:
        return [
            Route("/models", answering(self.list)),
            Route("/models/load", answering(self.load), methods=["POST"]),
            Route("/models/unload", answering(self.unload), methods=["POST"]),
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
