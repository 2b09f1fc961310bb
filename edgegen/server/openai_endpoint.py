"""OpenAIEndpoint: answers chat completions and completions, whole or as server-sent events."""

import asyncio
import json
from collections.abc import AsyncGenerator, Coroutine, Sequence
from time import perf_counter
from typing import Any, cast

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from edgegen.chat import Conversation
from edgegen.generation.cancellation import CancelToken
from edgegen.generation.results import GenerationChunk, GenerationResult
from edgegen.generation.stream import TextStream
from edgegen.llm import LLM
from edgegen.options.generation import GenerationOptions
from edgegen.server.api_error import ApiError
from edgegen.server.json_body import read_json
from edgegen.server.metrics import Metrics
from edgegen.server.models import ServedModels
from edgegen.server.openai_request import OpenAIRequest
from edgegen.server.openai_response import Echo, ResponseWriter
from edgegen.server.options import ServerOptions

_LAST_WORDS_SECONDS = 5.0
"""For the error at the end of a stream whose client may not read any more."""

_STREAM_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-cache")]


class OpenAIEndpoint:
    """The ASGI application of one path. A client that leaves, and a request out of time, cancel the generation."""

    def __init__(self, url: str, models: ServedModels, options: ServerOptions, metrics: Metrics) -> None:
        self._url = url
        self._models = models
        self._options = options
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request, reply, token = Request(scope, receive), _Reply(send), CancelToken()
        begin = perf_counter()
        try:
            with self._models.admitted():
                async with asyncio.timeout(self._options.request_seconds):
                    body = await read_json(request)
                    await _while_connected(self._answer(body, request, reply, token, begin), receive, token)
        except TimeoutError:
            seconds = self._options.request_seconds
            said = f"the request took more than {seconds:g} seconds: ask for fewer tokens, or try again later."
            error = ApiError(503, said, kind="server_error", code="request_timeout", headers={"Retry-After": "1"})
            await reply.fail(error, scope, receive)
        except Exception as error:
            await reply.fail(ApiError.of(error), scope, receive)
        finally:
            token.cancel()
            self._metrics.ended(self._url, reply.status, perf_counter() - begin)

    async def _answer(
        self, body: dict[str, Any], request: Request, reply: "_Reply", token: CancelToken, begin: float
    ) -> None:
        name, llm = self._models.find(body.get("model"))
        asked = await run_in_threadpool(OpenAIRequest.read, body, self._url)
        options = await run_in_threadpool(asked.options, llm, self._options.max_tokens)
        echoes: list[Echo | None] = [None] * len(asked.prompts)
        if asked.echo:
            echoes = [await run_in_threadpool(_echo, llm, prompt, options, token) for prompt in asked.prompts]
        streams = await run_in_threadpool(_start, llm, asked, options, token) if asked.generates else []
        writer = ResponseWriter(self._url, name, asked.include_usage)
        pieces = _merged(streams)
        if asked.stream:
            await reply.begin_stream()
            answers = options.num_return_sequences if streams else 1
            for at, echo in enumerate(echoes):
                for index in range(at * answers, (at + 1) * answers if echo is not None else 0):
                    await reply.event(writer.echo(cast(Echo, echo), index, last=not streams))
        first = True
        async for at, piece in pieces:
            if first:
                self._metrics.first_token(self._url, perf_counter() - begin)
                first = False
            if asked.stream:
                for chunk in writer.chunks(piece, at * options.num_return_sequences + piece.index):
                    await reply.event(chunk)
        results: list[GenerationResult | None] = [stream.result for stream in streams] or [None] * len(echoes)
        for result in results:
            if result is not None:
                self._metrics.answered(name, result)
        if not asked.stream:
            await reply.whole(writer.body(results, echoes), request)
            return
        if asked.include_usage:
            await reply.event(writer.usage(results, echoes))
        await reply.end_stream()


class _Reply:
    """What has been sent of a response."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._began = False
        self._ended = False
        self.status = 499  # the client has left, unless something is sent

    async def whole(self, body: dict[str, Any], request: Request) -> None:
        self._began = self._ended = True
        self.status = 200
        await JSONResponse(body)(request.scope, request.receive, self._send)

    async def begin_stream(self) -> None:
        self._began = True
        self.status = 200
        await self._send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})

    async def event(self, content: dict[str, Any]) -> None:
        await self._write(json.dumps(content, ensure_ascii=False))

    async def end_stream(self) -> None:
        await self._write("[DONE]")
        await self._close()

    async def fail(self, error: ApiError, scope: Scope, receive: Receive) -> None:
        """Answer with ``error``, or end the stream with it."""
        if self._ended:
            return
        self.status = error.status
        if not self._began:
            self._began = self._ended = True
            await error.response()(scope, receive, self._send)
            return
        try:
            async with asyncio.timeout(_LAST_WORDS_SECONDS):
                await self.event(error.body)
                await self._close()
        except (TimeoutError, OSError):
            pass

    async def _write(self, data: str) -> None:
        await self._send(_body(f"data: {data}\n\n".encode(), more=True))

    async def _close(self) -> None:
        self._ended = True
        await self._send(_body(b"", more=False))


def _body(data: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


async def _while_connected(answer: Coroutine[Any, Any, None], receive: Receive, token: CancelToken) -> None:
    """Run ``answer`` until it is done or the client leaves; then what it runs is cancelled."""
    work, left = asyncio.ensure_future(answer), asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((work, left), return_when=asyncio.FIRST_COMPLETED)
        if work.done():
            work.result()
    finally:
        token.cancel()
        work.cancel()
        left.cancel()
        await asyncio.gather(work, left, return_exceptions=True)


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _merged(streams: Sequence[TextStream]) -> AsyncGenerator[tuple[int, GenerationChunk]]:
    """The chunks of all streams as they come, each with the number of its stream."""
    arrived = asyncio.Queue[tuple[int, GenerationChunk | BaseException | None]]()

    async def read(at: int, stream: TextStream) -> None:
        try:
            async for chunk in stream:
                arrived.put_nowait((at, chunk))
            arrived.put_nowait((at, None))
        except Exception as error:
            arrived.put_nowait((at, error))

    readers = [asyncio.ensure_future(read(at, stream)) for at, stream in enumerate(streams)]
    try:
        left = len(readers)
        while left:
            at, item = await arrived.get()
            if isinstance(item, BaseException):
                raise item
            if item is None:
                left -= 1
            else:
                yield at, item
    finally:
        for reader in readers:
            reader.cancel()


def _start(llm: LLM, asked: OpenAIRequest, options: GenerationOptions, token: CancelToken) -> list[TextStream]:
    """Tokenize all prompts and submit them. They run in one batch."""
    return [
        llm.stream_chat(prompt, options, cancel=token)
        if isinstance(prompt, Conversation)
        else llm.stream(prompt, options, cancel=token)
        for prompt in asked.prompts
    ]


def _echo(llm: LLM, prompt: str | list[int] | Conversation, options: GenerationOptions, token: CancelToken) -> Echo:
    """The prompt as text, with the log-probabilities of its tokens if ``options`` ask for them."""
    assert not isinstance(prompt, Conversation)
    ids = llm.encode(prompt)
    text = prompt if isinstance(prompt, str) else llm.decode(ids, skip_special_tokens=False)
    if not options.logprobs:
        return Echo(text, len(ids))
    first = llm.decode(ids[:1], skip_special_tokens=False)
    if len(ids) == 1:
        return Echo(text, 1, first, ())
    score = llm.score(ids[:1], ids[1:], top_logprobs=options.top_logprobs, cancel=token)
    return Echo(text, len(ids), first, score.logprobs)
