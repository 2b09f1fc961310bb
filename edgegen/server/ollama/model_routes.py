"""OllamaRoutes: ollama's routes about models, which generate nothing."""

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from edgegen.bundle.bundle import Bundle
from edgegen.bundle.manifest import MANIFEST_NAME
from edgegen.chat import ChatTemplate
from edgegen.errors import UsageError
from edgegen.options.generation import GenerationOptions
from edgegen.server.http.api_error import ApiError
from edgegen.server.http.error_format import OLLAMA, answering
from edgegen.server.http.json_body import read_json
from edgegen.server.http.options import ServerOptions
from edgegen.server.http.request_log import request_facts
from edgegen.server.http.work import LOADING
from edgegen.server.models.model_description import capabilities
from edgegen.server.models.pull_order import PullOrder
from edgegen.server.models.pulls import Pulls
from edgegen.server.models.served_models import ServedModel, ServedModels
from edgegen.server.ollama.options import HONOURED
from edgegen.server.ollama.pull import FIRST, SUCCESS, PullAnswer
from edgegen.server.ollama.response import timestamp
from edgegen.server.ollama.schema import DELETE, DELETE_REQUEST, PULL, PULL_REQUEST, REFUSED, SHOW, SHOW_REQUEST
from edgegen.server.wire.wire import JSON_LINES, Event

VERSION = "0.12.11"
"""The version of ollama whose API this is; clients ask for a least one."""

_FOREVER = 200 * 365 * 86400.0
"""Seconds until a model that stays loaded is said to be unloaded."""

_TAG = ":latest"


class OllamaRoutes:
    """Names have the tag ``latest``, as clients of ollama expect."""

    def __init__(self, models: ServedModels, options: ServerOptions, pulls: Pulls | None = None) -> None:
        """``pulls``: None where clients may have no models pulled."""
        self._models = models
        self._options = options
        self._pulls = pulls

    def routes(self) -> list[Route]:
        return [
            Route(f"{OLLAMA}version", answering(self.version)),
            Route(f"{OLLAMA}tags", answering(self.tags)),
            Route(f"{OLLAMA}ps", answering(self.ps)),
            Route(SHOW, answering(self.show), methods=["POST"]),
            Route(PULL, answering(self.pull), methods=["POST"]),
            Route(DELETE, answering(self.delete), methods=["DELETE"]),
            *(Route(path, answering(partial(_refuse, why)), methods=["POST"]) for path, why in REFUSED.items()),
        ]

    async def version(self, request: Request) -> Response:
        return JSONResponse({"version": VERSION})

    async def tags(self, request: Request) -> Response:
        """All models that can be served; a bundle that cannot be read is left out."""
        tags = await self._told(
            await self._models.listed(),
            lambda model, bundle: {**_head(model, bundle), "modified_at": _modified(bundle)},
        )
        return JSONResponse({"models": tags})

    async def ps(self, request: Request) -> Response:
        """List the loaded models."""
        loaded = [model for model in await self._models.listed() if model.llm is not None]
        return JSONResponse({"models": await self._told(loaded, _process)})

    async def show(self, request: Request) -> Response:
        given = await read_json(request, SHOW_REQUEST.read)
        model = await self._models.find(_named(given))
        bundle = await self._models.bundle(model)
        return JSONResponse(await LOADING.run(_shown, f"{model.name}{_TAG}", bundle))

    async def pull(self, request: Request) -> Response:
        """Pull a model, unless it is served already.

        Raises:
            ApiError: this server does not pull models, the name is not valid, or another model has it.
        """
        given = await read_json(request, PULL_REQUEST.read)
        name, stream = _named(given), given.get("stream", True)
        if await self._is_served(name):
            return _lines(FIRST, SUCCESS) if stream else JSONResponse(SUCCESS)
        if self._pulls is None:
            raise ApiError(
                400,
                f"pull: {name!r} is not here, and this server pulls no models: start it with --allow-pull, or run "
                "`edgegen pull` on its machine.",
                param="model",
                code="pulls_not_allowed",
            )
        order = await self._order(name)
        request_facts(request.scope).model = order.model
        check = partial(self._models.find, order.model, exact=True)
        return PullAnswer(self._pulls, order, check, stream=stream, seconds=self._options.keep_alive_seconds)

    async def _is_served(self, name: str) -> bool:
        try:
            await self._models.find(name, exact=True)
        except ApiError:
            return await self._models.pulled(name, exact=True) is not None
        return True

    async def _order(self, name: str) -> PullOrder:
        """Return the order to pull this name.

        Raises:
            ApiError: it is no name of the catalogue and no hub id, or another model has the name of its bundle.
        """
        try:
            order = PullOrder.of(name.removesuffix(_TAG))
        except UsageError as error:
            raise ApiError(400, str(error), param="model", code="not_pullable") from None
        if any(model.name == order.model for model in await self._models.listed()):
            said = f"{order.model!r} is there already, and was not pulled from {order.hub}: delete it first."
            raise ApiError(409, said, param="model", code="name_taken")
        return order

    async def delete(self, request: Request) -> Response:
        given = await read_json(request, DELETE_REQUEST.read)
        await self._models.remove(_named(given))
        return Response()

    async def _told(
        self, models: Iterable[ServedModel], tell: Callable[[ServedModel, Bundle], dict[str, Any]]
    ) -> list[dict[str, Any]]:
        described = list[dict[str, Any]]()
        for model in models:
            try:
                described.append(await LOADING.run(tell, model, await self._models.bundle(model)))
            except (ApiError, OSError):  # `GET /models` tells what is wrong with it
                continue
        return described


def _lines(*lines: dict[str, str]) -> Response:
    text = "".join(JSON_LINES.text(Event.of(line)) for line in lines)
    return Response(text, headers={"content-type": JSON_LINES.media})


def _named(params: Mapping[str, Any]) -> str:
    """The model of a body: ``name`` is the older word for it.

    Raises:
        ApiError: the two say different names.
    """
    model, name = params.get("model"), params.get("name")
    if model and name and model != name:
        raise ApiError(400, "model and name are two models: leave name out.", param="name")
    return model or name or ""


async def _refuse(why: str, request: Request) -> Response:
    raise ApiError(400, f"{why}.", code="not_supported")


def _process(model: ServedModel, bundle: Bundle) -> dict[str, Any]:
    """Describe a model in memory: bytes as they are estimated, none of them a GPU's."""
    seconds = min(_FOREVER if model.keep_alive is None else model.keep_alive, _FOREVER)
    ends = datetime.fromtimestamp(model.last_used + seconds, UTC)
    return {
        **_head(model, bundle),
        "size": model.memory or bundle.nbytes,
        "size_vram": 0,
        "expires_at": timestamp(ends),
        "context_length": bundle.manifest.model.max_context,
    }


def _head(model: ServedModel, bundle: Bundle) -> dict[str, Any]:
    name = f"{model.name}{_TAG}"
    return {
        "name": name,
        "model": name,
        "size": bundle.nbytes,
        "digest": bundle.sha256,
        "details": _details(bundle),
    }


def _details(bundle: Bundle) -> dict[str, Any]:
    model, source = bundle.manifest.model, bundle.manifest.source
    return {
        "parent_model": source.id if source.kind == "hub" else "",
        "format": "onnx",
        "family": model.family,
        "families": [model.family],
        "parameter_size": _human(model.parameters),
        "quantization_level": bundle.manifest.quantization.scheme.upper(),
    }


def _human(count: int) -> str:
    for size, letter in ((1e9, "B"), (1e6, "M"), (1e3, "K")):
        if count >= size:
            return f"{count / size:.1f}{letter}"
    return str(count)


def _modified(bundle: Bundle) -> str:
    return timestamp(datetime.fromtimestamp((bundle.path / MANIFEST_NAME).stat().st_mtime, UTC))


def _shown(name: str, bundle: Bundle) -> dict[str, Any]:
    manifest, template = bundle.manifest, ChatTemplate.from_bundle(bundle)
    model, settings = manifest.model, [*_settings(bundle)]
    sizes = {
        "context_length": model.max_context,
        "embedding_length": model.hidden_size,
        "block_count": model.num_layers,
        "vocab_size": model.vocab_size,
    }
    return {
        "modelfile": "\n".join([f"FROM {name}", *(f"PARAMETER {key} {value}" for key, value in settings)]),
        "parameters": "\n".join(f"{key:<30} {value}" for key, value in settings),
        "template": template.source,
        "details": _details(bundle),
        "model_info": {
            "general.architecture": model.family,
            "general.parameter_count": model.parameters,
            **{f"{model.family}.{key}": value for key, value in sizes.items()},
        },
        "capabilities": capabilities(bundle, template),
        "modified_at": _modified(bundle),
    }


def _settings(bundle: Bundle) -> Iterable[tuple[str, str]]:
    """Yield the bundle's own generation options, by ollama's names."""
    context = bundle.manifest.model.max_context
    own = GenerationOptions.from_config(bundle.json(bundle.manifest.generation_config), context)
    default = GenerationOptions()
    yield "num_ctx", str(context)
    for name, option in HONOURED.items():
        value = getattr(own, option)
        if option == "temperature" and not own.do_sample:
            yield name, "0"
        elif option == "stop_strings":
            yield from ((name, json.dumps(text, ensure_ascii=False)) for text in value)
        elif value != getattr(default, option):
            yield name, str(value)
