"""Information about the server and its models: health, models, props, tokenization, metrics."""

import asyncio
import json
from array import array
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

import edgegen
from edgegen.bundle.model_card import usage_note
from edgegen.errors import EdgegenError, UsageError
from edgegen.evaluation.parity.report import ParityReport
from edgegen.llm import LLM
from edgegen.server.http.api_error import ApiError
from edgegen.server.http.error_format import answering
from edgegen.server.http.json_body import read_json
from edgegen.server.http.metrics import CONTENT_TYPE, Metrics
from edgegen.server.http.options import MOST_LIBRARY_CHARACTERS, MOST_TOKENIZED, ServerOptions
from edgegen.server.http.work import LOADING, LONG, PREPARING
from edgegen.server.models.model_description import description
from edgegen.server.models.served_models import ServedModel, ServedModels
from edgegen.server.wire.llama_fields import generation_settings
from edgegen.server.wire.parameters import Parameters
from edgegen.server.wire.schemas import TOKEN_ID
from edgegen.strict_json.schema import (
    BOOLEAN,
    STRING,
    Schema,
    advised,
    array_of,
    described,
    enum,
    expecting,
    object_of,
    parameters,
    ref,
)

_TOKENS_AT_ONCE = 2_000
"""Of a tokenized text, in one part of its answer."""

_Written = Callable[[int, int], Sequence[bytes]]
"""The JSON of the tokens from one place of a text to another."""

_MODEL = {"model": ref("ModelName")}
TOKENIZE: Schema = object_of(
    {},
    parameters(
        {
            **_MODEL,
            "content": described(
                STRING, "llama-server's name of the text: no special tokens, unless they are asked for."
            ),
            "prompt": described(STRING, "vLLM's name of the text: with special tokens, unless they are not wanted."),
            "add_special_tokens": described(BOOLEAN, "Put the tokens before the text that the model puts before one."),
            "add_special": described(BOOLEAN, "llama-server's name of add_special_tokens."),
            "parse_special": advised(enum(True), "control tokens in a text are always read as such: leave it out"),
            "with_pieces": described(BOOLEAN, "Give the text of each token too."),
        }
    ),
)
DETOKENIZE: Schema = object_of({"tokens": expecting(array_of(TOKEN_ID), "a list of token ids")}, parameters(_MODEL))
_TOKENIZE, _DETOKENIZE = Parameters("/tokenize", TOKENIZE), Parameters("/detokenize", DETOKENIZE)
_PROPS = Parameters("/props", object_of({}, _MODEL))


class Information:
    """Routes that generate nothing."""

    def __init__(self, models: ServedModels, options: ServerOptions, metrics: Metrics, *, running: int) -> None:
        self._models = models
        self._options = options
        self._metrics = metrics
        self._running = running
        self._described = dict[str, Mapping[str, Any]]()

    def routes(self) -> list[Route]:
        return [
            *(Route(path, answering(self.health)) for path in ("/health", "/v1/health")),
            Route("/v1/models", answering(self.models)),
            Route("/v1/models/{model:path}", answering(self.model)),
            Route("/props", answering(self.props)),
            Route("/tokenize", answering(self.tokenize), methods=["POST"]),
            Route("/detokenize", answering(self.detokenize), methods=["POST"]),
            Route("/metrics", answering(self.metrics)),
        ]

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def models(self, request: Request) -> Response:
        entries = [await self._entry(model) for model in await self._models.listed()]
        return JSONResponse({"object": "list", "data": entries})

    async def model(self, request: Request) -> Response:
        model = await self._models.find(request.path_params["model"])
        return JSONResponse(await self._entry(model))

    async def _entry(self, model: ServedModel) -> dict[str, Any]:
        """A model as OpenAI lists it, and what is known of it; a bundle that cannot be read has only a name."""
        entry = self._models.entry(model.name)
        try:
            bundle = await self._models.bundle(model)
            if bundle.sha256 not in self._described:
                self._described[bundle.sha256] = await LOADING.run(description, bundle)
        except (ApiError, EdgegenError, OSError):  # `GET /models` tells what is wrong with it
            return entry
        return {**entry, **self._described[bundle.sha256]}

    async def props(self, request: Request) -> Response:
        """Describe a model and what it can do; ``?model=NAME`` for others than the default.

        It loads none: a page of another site can make a browser send a GET, though it cannot read the answer.
        """
        _PROPS.read(request.query_params)
        names = [model.name for model in await self._models.listed()]
        async with self._models.lease(request.query_params.get("model"), load=False) as (name, llm):
            return JSONResponse(await PREPARING.run(self._props, name, llm, names))

    async def tokenize(self, request: Request) -> Response:
        """The ids of ``content``, as llama-server has it, or of ``prompt``, as vLLM has it."""
        with self._models.admitted():  # a body may be large
            body = await read_json(request, _TOKENIZE.read)
            if "prompt" in body and "content" in body:
                raise ApiError(400, "content and prompt are the same: leave one out.", param="prompt")
            if "add_special" in body and "add_special_tokens" in body:
                raise ApiError(
                    400, "add_special and add_special_tokens are the same: leave one out.", param="add_special"
                )
            text, special = body.get("content", body.get("prompt")), "prompt" in body
            special = body.get("add_special", body.get("add_special_tokens", special))
            if text is None:
                raise ApiError(400, "content is missing: text expected.", param="content")
            async with self._models.lease(body.get("model")) as (_, llm):
                ids = await LONG.run(_tokenized, llm, text, special=special)
                written = await LONG.run(_written, llm, ids, pieces=bool(body.get("with_pieces")))
                return StreamingResponse(_told(ids, written, llm.max_context), media_type="application/json")

    async def detokenize(self, request: Request) -> Response:
        """The text of ``tokens``, control tokens included."""
        with self._models.admitted():  # a body may be large
            body = await read_json(request, _DETOKENIZE.read)
            async with self._models.lease(body.get("model")) as (_, llm):
                try:
                    text = await LONG.run(_detokenized, llm, body["tokens"])
                except UsageError as error:
                    raise ApiError(400, str(error), param="tokens") from None
            return JSONResponse({"content": text})

    async def metrics(self, request: Request) -> Response:
        return Response(self._metrics.text(), headers={"content-type": CONTENT_TYPE})

    def _props(self, name: str, llm: LLM, names: list[str]) -> dict[str, Any]:
        model, variant, template = llm.bundle.manifest.model, llm.bundle.variant, llm.chat_template
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
            "note": usage_note(llm.bundle),
            "chat_template": "" if template.is_fallback else template.source,
            **{name: template.special_tokens.get(name, "") for name in ("bos_token", "eos_token")},
            "build_info": f"edgegen {edgegen.__version__}",
            "model_alias": name,
            "model_path": llm.bundle.path.name,
            "modalities": {"vision": False, "audio": False},
            "total_slots": self._running,
            "default_generation_settings": {
                "n_ctx": llm.max_context,
                "params": generation_settings(llm.generation_options),
            },
            "thinking": _thinking(llm),
            "template_capabilities": llm.chat_template.describe(),
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


def _tokenized(llm: LLM, text: str, *, special: bool) -> "array[int]":
    """The ids of a text, packed: a list takes ten times the memory.

    Raises:
        ApiError: the text is too long, or has too many tokens.
    """
    tokenizer = llm.tokenizer
    if tokenizer is None:
        raise ApiError(400, "this model has no tokenizer: it takes token ids only.")
    if len(text) > MOST_LIBRARY_CHARACTERS and not tokenizer.is_compiled:
        said = (
            f"content: at most {MOST_LIBRARY_CHARACTERS:,} characters for this model's tokenizer, found {len(text):,}"
        )
        raise ApiError(400, f"{said}: send it in parts.", param="content")
    if tokenizer.least_tokens(text) > MOST_TOKENIZED:
        raise _too_many_tokens()
    ids = tokenizer.encode(text, add_special_tokens=False) if not special else llm.encode(text) if text else []
    if len(ids) > MOST_TOKENIZED:
        raise _too_many_tokens()
    return array("I", ids)


def _too_many_tokens() -> ApiError:
    return ApiError(400, f"content: at most {MOST_TOKENIZED:,} tokens: send it in parts.", param="content")


def _written(llm: LLM, ids: "array[int]", *, pieces: bool) -> _Written:
    """The JSON of the tokens; each is written once, however often it is in the text."""
    tokenizer = llm.tokenizer
    assert tokenizer is not None, "a text was tokenized"
    if pieces and not tokenizer.spells_bytes:  # a token's text depends on its neighbours
        each = [_piece(token_id, piece) for token_id, piece in zip(ids, tokenizer.pieces(ids), strict=True)]
        return lambda begin, end: each[begin:end]
    distinct = [*dict.fromkeys(ids)]
    tokens = map(_piece, distinct, tokenizer.pieces(distinct)) if pieces else (b"%d" % one for one in distinct)
    written = dict(zip(distinct, tokens, strict=True))
    return lambda begin, end: [written[token_id] for token_id in ids[begin:end]]


def _piece(token_id: int, piece: bytes) -> bytes:
    try:
        text: str | list[int] = piece.decode()
    except UnicodeDecodeError:
        text = [*piece]
    return json.dumps({"id": token_id, "piece": text}, ensure_ascii=False, separators=(",", ":")).encode()


async def _told(ids: "array[int]", written: _Written, context: int) -> AsyncGenerator[bytes]:
    """The answer about ``ids`` in parts, each of which is made when the one before it has been sent."""
    yield b'{"tokens":['
    for begin in range(0, len(ids), _TOKENS_AT_ONCE):
        part = b",".join(written(begin, begin + _TOKENS_AT_ONCE))
        yield b"," + part if begin else part
        await asyncio.sleep(0)  # sending does not wait where the client reads as fast as this
    yield b'],"count":%d,"max_model_len":%d}' % (len(ids), context)


def _detokenized(llm: LLM, ids: Sequence[int]) -> str:
    """The pieces of ``ids``, joined: where these are part of a text, it has the space before them."""
    llm.decode([*set(ids)])  # refuses what are no ids of this model
    assert llm.tokenizer is not None
    return b"".join(llm.tokenizer.pieces(ids)).decode("utf-8", "replace")


def _thinking(llm: LLM) -> dict[str, Any]:
    """Describe the thinking that a chat may ask for: whether thoughts can be switched, the levels of effort, whether
    there are any."""
    template = llm.chat_template
    switch, thinks = template.thinking_switch(), template.reasoning() is not None
    return {"switch": switch.can_switch, "efforts": [*switch.efforts], "thinks": thinks or switch.is_there}


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
