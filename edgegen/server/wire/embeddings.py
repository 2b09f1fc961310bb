"""EmbeddingsEndpoint: answers the requests for embeddings of one path; OpenAI's ``/v1/embeddings``."""

import base64
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, get_args

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send

from edgegen.errors import UsageError
from edgegen.generation.cancellation import CancelToken
from edgegen.llm import LLM
from edgegen.scoring.embeddings import Embeddings, Pooling
from edgegen.server.http.api_error import ApiError
from edgegen.server.http.error_format import error_response
from edgegen.server.http.json_body import read_json
from edgegen.server.http.metrics import Metrics
from edgegen.server.http.options import MOST_EMBEDDED_TOKENS, MOST_EMBEDDING_INPUTS, ServerOptions
from edgegen.server.http.request_log import RequestFacts, request_facts
from edgegen.server.http.time_limit import time_limit
from edgegen.server.http.work import ASKING, READING
from edgegen.server.models.served_models import ServedModels
from edgegen.server.wire.endpoint import while_connected
from edgegen.server.wire.parameters import Parameters, several
from edgegen.server.wire.schemas import NOTHING, PROMPT_IDS
from edgegen.strict_json.schema import BOOLEAN, Schema, any_of, array_of, enum, expecting, object_of, parameters, ref

EMBEDDINGS = "/v1/embeddings"

TEXT: Schema = expecting({"type": "string", "minLength": 1}, "a text that is not empty")
_SEVERAL = array_of(any_of(TEXT, PROMPT_IDS), 1, MOST_EMBEDDING_INPUTS)
INPUTS = expecting(any_of(TEXT, PROMPT_IDS, _SEVERAL), "a text, a list of token ids, or a list of such inputs")
REQUEST: Schema = object_of(
    {"input": INPUTS},
    parameters(
        {
            "model": ref("ModelName"),
            "encoding_format": enum("float", "base64"),
            "dimensions": {"type": "integer", "minimum": 1},
            "user": NOTHING,
            "pooling": enum(*get_args(Pooling)),
            "normalize": BOOLEAN,
        }
    ),
)
"""Schema of a body, here and in the OpenAPI document."""

_PARAMETERS = Parameters(EMBEDDINGS, REQUEST)


@dataclass(frozen=True, slots=True)
class EmbeddingsRequest:
    """A body that has been read and checked.

    Attributes:
        inputs: texts, or token ids.
        normalize: vectors have the length 1; None leaves it to the bundle.
        body: the parameters that are given, by name.
        param: the one that has the inputs.
        truncate: what does not fit the context is left out of an input, but for the tokens that end one; otherwise it
            is an error.
        keep_alive: seconds that the model stays loaded after its last request; None changes nothing.
        begin: when it was read, by :func:`time.perf_counter`.
    """

    inputs: tuple[str | list[int], ...]
    normalize: bool | None
    body: Mapping[str, Any]
    param: str = "input"
    truncate: bool = False
    keep_alive: float | None = None
    begin: float = field(default_factory=perf_counter)

    def embed(self, llm: LLM, token: CancelToken) -> Embeddings:
        """Compute the embeddings of all inputs.

        Raises:
            ApiError: the model has no hidden states; an input is empty or too long, or all are together; ``pooling`` or
                ``dimensions`` are wrong; or the embedding was cancelled.
        """
        try:
            if llm.embedding_size is None:
                llm.embed([])  # says how to export it
            ids = [llm.encode(one) if isinstance(one, str) else one for one in self.inputs]
            if self.truncate:
                ids = [_truncated(llm, one) for one in ids]
            tokens = sum(map(len, ids))
            if tokens > MOST_EMBEDDED_TOKENS:
                message = (
                    f"{self.param}: at most {MOST_EMBEDDED_TOKENS} tokens in a request, found {tokens}: send several."
                )
                raise ApiError(400, message, param=self.param)
            embeddings = llm.embed(
                ids,
                pooling=self.body.get("pooling"),
                normalize=self.normalize,
                dimensions=self.body.get("dimensions"),
                cancel=token,
            )
        except UsageError as error:
            refusal = ApiError.of(error)
            named = re.match(r"\w+(?=:)", str(error))
            refusal.param = named[0] if named and named[0] in self.body else self.param
            if llm.embedding_size is None:
                refusal.param, refusal.code = "model", "no_embeddings"
            raise refusal from None
        if not embeddings.complete:
            message = "the embedding was cancelled: the model is closed, or the client has left."
            raise ApiError(503, message, kind="server_error", code="cancelled", headers={"Retry-After": "1"})
        return embeddings


def _truncated(llm: LLM, ids: list[int]) -> list[int]:
    """Return the ids of a text that fit; those that the tokenizer puts after a text, one of which the last token's
    vector is of, stay."""
    excess = len(ids) - llm.max_context
    if excess <= 0:
        return ids
    after = llm.tokenizer.ids_after if llm.tokenizer is not None else 0
    return [*ids[: len(ids) - after - excess], *ids[len(ids) - after :]]


@dataclass(frozen=True, slots=True)
class EmbeddingsWire:
    """The API of one path.

    Attributes:
        read: checks a body, in a thread, before any model is looked at; raises ``ApiError`` for a parameter that is
            unknown, of another type or beyond its limit.
        answer: the body of the answer of a model of that name; the last argument is when the model was there, by
            :func:`time.perf_counter`.
    """

    url: str
    read: Callable[[Mapping[str, Any]], EmbeddingsRequest]
    answer: Callable[[str, EmbeddingsRequest, Embeddings, float], dict[str, Any] | list[dict[str, Any]]]


def _read(body: Mapping[str, Any]) -> EmbeddingsRequest:
    given = _PARAMETERS.read(body)
    return EmbeddingsRequest(several(given["input"]), given.get("normalize"), given)


def _answer(model: str, asked: EmbeddingsRequest, embeddings: Embeddings, loaded: float) -> dict[str, Any]:
    """Vectors, or the base64 of their float32 values in little-endian order."""
    vectors = embeddings.vectors.astype("<f4")
    coded = asked.body.get("encoding_format") == "base64"
    told: list[Any] = [base64.b64encode(one.tobytes()).decode() for one in vectors] if coded else vectors.tolist()
    data = [{"object": "embedding", "index": at, "embedding": one} for at, one in enumerate(told)]
    usage = {"prompt_tokens": embeddings.prompt_tokens, "total_tokens": embeddings.prompt_tokens}
    return {"object": "list", "data": data, "model": model, "usage": usage}


EMBEDDINGS_WIRE = EmbeddingsWire(EMBEDDINGS, _read, _answer)


class EmbeddingsEndpoint:
    """The ASGI application of one path. A client that leaves, and a request out of time, cancel the embedding."""

    def __init__(self, wire: EmbeddingsWire, models: ServedModels, options: ServerOptions, metrics: Metrics) -> None:
        self._wire = wire
        self._models = models
        self._options = options
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, token, begin = Request(scope, receive), CancelToken(), perf_counter()
        answers, status = list[Response](), 499  # the client has left, unless there is an answer
        try:
            with self._models.admitted():
                async with time_limit(self._options.request_seconds):
                    model, asked = await read_json(request, lambda body: (body.get("model"), self._wire.read(body)))
                    facts = request_facts(scope)
                    await while_connected(self._answer(model, asked, facts, token, answers), receive, token)
        except TimeoutError:
            error = ApiError.timed_out(self._options.request_seconds, "send fewer inputs")
            answers.append(error_response(error, scope))
        except Exception as error:
            answers.append(error_response(ApiError.of(error), scope))
        finally:
            token.cancel()
        try:
            for answer in answers:
                status = answer.status_code
                await answer(scope, receive, send)
        finally:
            self._metrics.ended(self._wire.url, status, perf_counter() - begin)

    async def _answer(
        self,
        model: str | None,
        asked: EmbeddingsRequest,
        facts: RequestFacts,
        token: CancelToken,
        answers: list[Response],
    ) -> None:
        async with self._models.lease(model, keep_alive=asked.keep_alive) as (name, llm):
            facts.model, loaded = name, perf_counter()
            found = await ASKING.run(asked.embed, llm, token)
            facts.prompt_tokens = found.prompt_tokens
            self._metrics.embedded(name, found.prompt_tokens)
        told = await READING.run(self._wire.answer, name, asked, found, loaded)
        answers.append(JSONResponse(told))
