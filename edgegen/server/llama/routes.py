"""LlamaRoutes: llama-server's routes that generate nothing."""

from dataclasses import replace
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from edgegen.chat import Conversation
from edgegen.errors import EdgegenError
from edgegen.llm import LLM
from edgegen.openai.request import read_chat
from edgegen.server.http.api_error import ApiError
from edgegen.server.http.error_format import answering
from edgegen.server.http.json_body import read_json
from edgegen.server.http.work import PREPARING
from edgegen.server.llama.schema import APPLY_TEMPLATE, LORA_ADAPTERS, RERANK, SLOTS, TEMPLATE_REQUEST
from edgegen.server.models.served_models import ServedModels
from edgegen.server.wire.parameters import refusal

_NO_RERANKER = "no model here ranks texts: embeddings of a bundle exported with --with-hidden can be compared instead."


class LlamaRoutes:
    """Routes that programs for llama-server ask for beside completions."""

    def __init__(self, models: ServedModels, *, running: int) -> None:
        self._models = models
        self._running = running

    def routes(self) -> list[Route]:
        return [
            Route(APPLY_TEMPLATE, answering(self.apply_template), methods=["POST"]),
            Route(SLOTS, answering(self.slots)),
            Route(LORA_ADAPTERS, answering(self.lora_adapters)),
            *(Route(path, answering(self.rerank), methods=["POST"]) for path in RERANK),
        ]

    async def apply_template(self, request: Request) -> Response:
        """The prompt that the model's chat template makes of ``messages``."""
        with self._models.admitted():
            body = await read_json(request, TEMPLATE_REQUEST.read)
            problems = list[str]()
            conversation = read_chat(body, problems)
            if problems or conversation is None:
                raise refusal(problems, "messages")
            async with self._models.lease(body.get("model")) as (_, llm):
                return JSONResponse({"prompt": await PREPARING.run(_rendered, llm, conversation, body)})

    async def slots(self, request: Request) -> Response:
        """The slots of the default model, and how many of them are in use."""
        async with self._models.lease(None, load=False) as (_, llm):
            model = await self._models.find(None)
            used = min(model.users - 1, self._running)  # one is this request
            slots = [
                {"id": number, "n_ctx": llm.max_context, "speculative": False, "is_processing": number < used}
                for number in range(self._running)
            ]
            return JSONResponse(slots)

    async def lora_adapters(self, request: Request) -> Response:
        """The adapter bundles, each of which is a model by its name; its scale is 1 where it is the default model."""
        adapters = list[dict[str, Any]]()
        for model in await self._models.listed():
            try:
                base = (await self._models.bundle(model)).manifest.base
            except ApiError:
                continue  # a request for the model itself says why it cannot be read
            if base is not None:
                scale = float(model.name == self._models.default)
                adapters.append({"id": len(adapters), "path": model.name, "scale": scale, "base": base.name})
        return JSONResponse(adapters)

    async def rerank(self, request: Request) -> Response:
        raise ApiError(400, _NO_RERANKER, code="not_supported")


def _rendered(llm: LLM, conversation: Conversation, body: dict[str, Any]) -> str:
    if llm.chat_template.is_fallback:
        raise ApiError(400, "this model has no chat template.", param="messages", code="not_supported")
    try:
        return llm.chat_template.render(replace(conversation, tools=body.get("tools") or None))
    except EdgegenError as error:
        raise ApiError(400, str(error), param="messages") from None
