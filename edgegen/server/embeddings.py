"""EmbeddingsEndpoint: answers ``/v1/embeddings``, OpenAI's API of embeddings."""

import asyncio
import base64
import re
from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any, cast

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from edgegen.errors import UsageError, did_you_mean
from edgegen.generation.cancellation import CancelToken
from edgegen.llm import LLM
from edgegen.options.validation import number
from edgegen.scoring.embeddings import Embeddings
from edgegen.server.api_error import ApiError
from edgegen.server.endpoint import while_connected
from edgegen.server.json_body import read_json
from edgegen.server.metrics import Metrics
from edgegen.server.models import ServedModels
from edgegen.server.openai.request import given_parameters, switch
from edgegen.server.options import MOST_EMBEDDED_TOKENS, MOST_EMBEDDING_INPUTS, ServerOptions

EMBEDDINGS = "/v1/embeddings"

KNOWN = ("model", "input", "encoding_format", "dimensions", "user", "pooling", "normalize")
_FORMATS = ("float", "base64")

_THREADS = 8
"""Requests that wait for a model at once, each in a thread of the pool that all requests share; others wait for one."""


@dataclass(frozen=True, slots=True)
class EmbeddingsRequest:
    """A body that has been read and checked.

    Attributes:
        inputs: texts, or token ids.
        base64: vectors are told as the base64 of their float32 values in little-endian order.
        body: the parameters that are given, by name.
    """

    inputs: tuple[str | list[int], ...]
    base64: bool
    normalize: bool
    body: Mapping[str, Any]

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> "EmbeddingsRequest":
        """
        Raises:
            ApiError: a parameter is unknown, of another type or beyond its limit.
        """
        given = given_parameters(body, EMBEDDINGS, KNOWN)
        form = given.get("encoding_format", "float")
        if form not in _FORMATS:
            near = did_you_mean(str(form), _FORMATS)
            raise ApiError(400, f"encoding_format: 'float' or 'base64' expected{near}.", param="encoding_format")
        problems = number("dimensions", given["dimensions"], int, 1) if "dimensions" in given else []
        if problems:
            raise ApiError(400, problems[0], param="dimensions")
        return cls(_inputs(given), form == "base64", switch(given, "normalize", default=True), given)

    def embed(self, llm: LLM, token: CancelToken) -> Embeddings:
        """
        Raises:
            ApiError: the model has no hidden states; an input is empty or too long, or all are together; ``pooling`` or
                ``dimensions`` are wrong; or the embedding was cancelled.
        """
        try:
            if llm.embedding_size is None:
                llm.embed([])  # says how to export it
            ids = [llm.encode(one) if isinstance(one, str) else one for one in self.inputs]
            tokens = sum(map(len, ids))
            if tokens > MOST_EMBEDDED_TOKENS:
                said = f"input: at most {MOST_EMBEDDED_TOKENS} tokens in a request, found {tokens}: send several."
                raise ApiError(400, said, param="input")
            found = llm.embed(
                ids,
                pooling=self.body.get("pooling", "mean"),
                normalize=self.normalize,
                dimensions=self.body.get("dimensions"),
                cancel=token,
            )
        except UsageError as error:
            told = ApiError.of(error)
            named = re.match(r"\w+(?=:)", str(error))
            told.param = named[0] if named and named[0] in self.body else "input"
            if llm.embedding_size is None:
                told.param, told.code = "model", "no_embeddings"
            raise told from None
        if not found.complete:
            said = "the embedding was cancelled: the model is closed, or the client has left."
            raise ApiError(503, said, kind="server_error", code="cancelled", headers={"Retry-After": "1"})
        return found

    def response(self, model: str, found: Embeddings) -> Response:
        vectors = found.vectors.astype("<f4")
        told: list[Any] = (
            [base64.b64encode(vector.tobytes()).decode() for vector in vectors] if self.base64 else vectors.tolist()
        )
        data = [{"object": "embedding", "index": at, "embedding": one} for at, one in enumerate(told)]
        usage = {"prompt_tokens": found.prompt_tokens, "total_tokens": found.prompt_tokens}
        return JSONResponse({"object": "list", "data": data, "model": model, "usage": usage})


class EmbeddingsEndpoint:
    """The ASGI application of the path. A client that leaves, and a request out of time, cancel the embedding."""

    def __init__(self, models: ServedModels, options: ServerOptions, metrics: Metrics) -> None:
        self._models = models
        self._options = options
        self._metrics = metrics
        self._threads = asyncio.Semaphore(_THREADS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, token, begin = Request(scope, receive), CancelToken(), perf_counter()
        answers, status = list[Response](), 499  # the client has left, unless there is an answer
        try:
            with self._models.admitted():
                async with asyncio.timeout(self._options.request_seconds):
                    body = await read_json(request)
                    await while_connected(self._answer(body, token, answers), receive, token)
        except TimeoutError:
            seconds = self._options.request_seconds
            said = f"the request took more than {seconds:g} seconds: send fewer inputs, or try again later."
            headers = {"Retry-After": "1"}
            error = ApiError(503, said, kind="server_error", code="request_timeout", headers=headers)
            answers.append(error.response())
        except Exception as error:
            answers.append(ApiError.of(error).response())
        finally:
            token.cancel()
        try:
            for answer in answers:
                status = answer.status_code
                await answer(scope, receive, send)
        finally:
            self._metrics.ended(EMBEDDINGS, status, perf_counter() - begin)

    async def _answer(self, body: dict[str, Any], token: CancelToken, answers: list[Response]) -> None:
        asked = await run_in_threadpool(EmbeddingsRequest.read, body)
        async with self._models.lease(body.get("model")) as (name, llm), self._threads:
            found = await run_in_threadpool(asked.embed, llm, token)
            self._metrics.embedded(name, found.prompt_tokens)
        answers.append(await run_in_threadpool(asked.response, name, found))


def _inputs(given: Mapping[str, Any]) -> tuple[str | list[int], ...]:
    found: object = given.get("input")
    is_one = isinstance(found, str) or _are_ids(found)
    several: list[object] = cast(list[object], found) if isinstance(found, list) and not is_one else [found]
    if len(several) > MOST_EMBEDDING_INPUTS:
        said = f"input: at most {MOST_EMBEDDING_INPUTS} inputs, found {len(several)}: send several requests."
        raise ApiError(400, said, param="input")
    if not several or not all(isinstance(one, str) or _are_ids(one) for one in several):
        said = "input: a text, a list of token ids, or a list of such inputs expected, and none of them empty."
        raise ApiError(400, said, param="input")
    if "" in several:
        raise ApiError(400, "input: a text is empty: give some text.", param="input")
    return tuple(cast(list[str | list[int]], several))


def _are_ids(value: object) -> bool:
    ids = cast(list[object], value) if isinstance(value, list) else []
    return bool(ids) and all(type(token) is int for token in ids)
