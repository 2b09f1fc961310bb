"""Information about the server and its models: health, models, props, tokenization, metrics."""

from reprlib import repr as shortened
from typing import Any, cast

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

import edgegen
from edgegen.errors import UsageError
from edgegen.llm import LLM
from edgegen.parity.report import ParityReport
from edgegen.server.api_error import ApiError
from edgegen.server.handler import Handler, answering, check_names, known_body
from edgegen.server.metrics import CONTENT_TYPE, Metrics
from edgegen.server.models import ServedModels
from edgegen.server.options import ServerOptions


class Information:
    """Routes that generate nothing."""

    def __init__(self, models: ServedModels, options: ServerOptions, metrics: Metrics) -> None:
        self._models = models
        self._options = options
        self._metrics = metrics

    def routes(self) -> list[Route]:
        return [
            Route("/health", answering(self.health)),
            Route("/v1/models", answering(self.models)),
            Route("/v1/models/{model:path}", answering(self.model)),
            Route("/props", answering(self.props)),
            Route("/tokenize", answering(self._counted(self.tokenize)), methods=["POST"]),
            Route("/detokenize", answering(self._counted(self.detokenize)), methods=["POST"]),
            Route("/metrics", answering(self.metrics)),
        ]

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def models(self, request: Request) -> Response:
        entries = [self._models.entry(model.name) for model in await self._models.listed()]
        return JSONResponse({"object": "list", "data": entries})

    async def model(self, request: Request) -> Response:
        model = await self._models.find(request.path_params["model"])
        return JSONResponse(self._models.entry(model.name))

    async def props(self, request: Request) -> Response:
        """What a model is and can do; ``?model=NAME`` for others than the default.

        It loads none: a page of another site can make a browser send a GET, though it cannot read the answer.
        """
        check_names(request, request.query_params, ("model",))
        names = [model.name for model in await self._models.listed()]
        async with self._models.lease(request.query_params.get("model"), load=False) as (name, llm):
            return JSONResponse(await run_in_threadpool(self._props, name, llm, names))

    async def tokenize(self, request: Request) -> Response:
        """The ids of ``content``; ``prompt`` is another name for it."""
        body = await known_body(request, ("model", "content", "prompt", "add_special_tokens"))
        if "prompt" in body and "content" in body:
            raise ApiError(400, "content and prompt are the same: leave one out.", param="prompt")
        name = "prompt" if "prompt" in body else "content"
        text, special = body.get(name), body.get("add_special_tokens", True)
        if not isinstance(text, str):
            raise ApiError(400, f"{name}: text expected, found {shortened(text)}", param=name)
        if not isinstance(special, bool):
            raise ApiError(400, "add_special_tokens: true or false expected.", param="add_special_tokens")
        async with self._models.lease(body.get("model")) as (_, llm):
            ids = await run_in_threadpool(_tokenized, llm, text, special=special)
            return JSONResponse({"tokens": ids, "count": len(ids), "max_model_len": llm.max_context})

    async def detokenize(self, request: Request) -> Response:
        """The text of ``tokens``, control tokens included."""
        body = await known_body(request, ("model", "tokens"))
        ids: object = body.get("tokens")
        if not isinstance(ids, list) or any(type(token) is not int for token in cast(list[object], ids)):
            raise ApiError(
                400, f"tokens: a list of token ids expected, found {shortened(body.get('tokens'))}", param="tokens"
            )
        async with self._models.lease(body.get("model")) as (_, llm):
            try:
                text = await run_in_threadpool(llm.decode, cast(list[int], ids), skip_special_tokens=False)
            except UsageError as error:
                raise ApiError(400, str(error), param="tokens") from None
        return JSONResponse({"content": text})

    async def metrics(self, request: Request) -> Response:
        return Response(self._metrics.text(), headers={"content-type": CONTENT_TYPE})

    def _counted(self, handler: Handler) -> Handler:
        """``handler``, admitted like a request for text: a body may be large."""

        async def answer(request: Request) -> Response:
            with self._models.admitted():
                return await handler(request)

        return answer

    def _props(self, name: str, llm: LLM, names: list[str]) -> dict[str, Any]:
        model, variant = llm.bundle.manifest.model, llm.bundle.variant
        return {
            "model": name,
            "models": names,
            "version": edgegen.__version__,
            "family": model.family,
            "parameters": model.parameters,
            "quantization": llm.bundle.manifest.quantization.scheme,
            "kv": variant.kv.dtype,
            "context": llm.max_context,
            "max_tokens": min(self._options.max_tokens or llm.max_context, llm.max_context),
            "chat_template": not llm.chat_template.is_fallback,
            "capabilities": {
                "chat": llm.tokenizer is not None,
                "completions": True,
                "logprobs": True,
                "response_format": llm.tokenizer is not None,
                "tools": llm.tokenizer is not None,
                "embeddings": llm.embedding_size is not None,
            },
            "generation_options": llm.generation_options.to_json(),
            "parity": _parity(llm),
        }


def _tokenized(llm: LLM, text: str, *, special: bool) -> list[int]:
    if special:
        return llm.encode(text) if text else []
    tokenizer = llm.tokenizer
    if tokenizer is None:
        raise ApiError(400, "this model has no tokenizer: it takes token ids only.")
    llm.encode(text or "a")  # refuses what is no Unicode text
    return tokenizer.encode(text, add_special_tokens=False)


def _parity(llm: LLM) -> dict[str, Any]:
    """The preferred variant's figures, as ``edgegen info`` shows them."""
    report = ParityReport.read(llm.bundle)
    figures = report.preferred
    return {
        "text": report.text,
        "tokens": report.tokens,
        "mean_kl": figures.mean_kl,
        "max_kl": figures.max_kl,
        "top1_agreement": figures.top1_agreement,
        "perplexity": figures.perplexity,
        "perplexity_reference": report.perplexity_reference,
        "perplexity_change": figures.perplexity_change,
        "perplexity_change_error": figures.perplexity_change_error,
        "weights_bytes": report.weights_bytes,
        "bundle_bytes": report.bundle_bytes,
    }
