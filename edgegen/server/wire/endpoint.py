"""GenerationEndpoint: answers the requests of one path, whole or as a stream of events."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable, Mapping, Sequence
from time import perf_counter
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.types import Message, Receive, Scope, Send

from edgegen.generation.cancellation import CancelToken
from edgegen.generation.results import GenerationChunk
from edgegen.generation.stream import TextStream
from edgegen.llm import LLM
from edgegen.options.generation import GenerationOptions
from edgegen.server.http.api_error import ApiError
from edgegen.server.http.json_body import read_json
from edgegen.server.http.metrics import Metrics
from edgegen.server.http.options import ServerOptions
from edgegen.server.http.request_log import LoggedError, RequestFacts, request_facts
from edgegen.server.http.time_limit import time_limit
from edgegen.server.http.work import ASKING, COMPILING, PREPARING, WorkThreads
from edgegen.server.models.served_models import ServedModels
from edgegen.server.wire.operation import DROPPED_HEADER
from edgegen.server.wire.prefill_reports import PrefillReports
from edgegen.server.wire.wire import ChatPrompt, Event, PromptInfo, ResponseWriter, Wire, WireRequest

WARNING_HEADER = "Edgegen-Warning"
"""Header that names the parts of a request that had no effect, if any."""

_LAST_WORDS_SECONDS = 5.0
"""For the error at the end of a stream whose client may not read any more."""


class GenerationEndpoint:
    """The ASGI application of one path. A client that leaves, and a request out of time, cancel the generation."""

    def __init__(self, wire: Wire, models: ServedModels, options: ServerOptions, metrics: Metrics) -> None:
        self._wire = wire
        self._models = models
        self._options = options
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        facts, token = request_facts(scope), CancelToken()
        request = Request(scope, receive)
        reply = _Reply(send, self._wire, facts, self._options.keep_alive_seconds)
        begin = perf_counter()
        try:
            with self._models.admitted():
                async with time_limit(self._options.request_seconds):
                    model, asked = await read_json(request, lambda body: (body.get("model"), self._wire.read(body)))
                    await while_connected(
                        self._answer(model, asked, request, reply, facts, token, begin), receive, token
                    )
        except TimeoutError:
            error = ApiError.timed_out(self._options.request_seconds, "ask for fewer tokens")
            await reply.fail(error, scope, receive)
        except Exception as error:
            await reply.fail(ApiError.of(error), scope, receive)
        finally:
            token.cancel()
            self._metrics.ended(self._wire.url, reply.status, perf_counter() - begin)

    async def _answer(
        self,
        model: str | None,
        asked: WireRequest,
        request: Request,
        reply: "_Reply",
        facts: RequestFacts,
        token: CancelToken,
        begin: float,
    ) -> None:
        if asked.unloads:
            released = await self._models.release(model)
            await reply.whole(self._wire.writer(released.name, asked).body([]), request, {})
            return
        async with self._models.lease(model, keep_alive=asked.keep_alive) as (name, llm):
            facts.model = name
            most, any_priority = self._options.max_tokens, self._options.allow_priority
            options = await PREPARING.run(asked.settings.options, llm, most, any_priority=any_priority)
            reply.writer = writer = self._wire.writer(name, asked)
            await (ASKING if asked.echo else PREPARING).run(writer.prepare, llm, options, token)
            warning = await PREPARING.run(asked.settings.warning, llm)
            streams = await _threads_for(asked, options).run(_start, llm, asked, options, token)
            dropped = sum(stream.dropped_messages for stream in streams)
            headers = {DROPPED_HEADER: str(dropped)} if dropped else {}
            if warning:
                headers[WARNING_HEADER] = warning
            prompt_tokens = sum(stream.prompt_tokens for stream in streams)
            out = 0
            if streams:
                facts.prompt_tokens, facts.completion_tokens = prompt_tokens, out
            if asked.stream:
                await reply.begin_stream(headers)  # before anything of the prompts is read by the model
                await reply.events(writer.begin(PromptInfo(prompt_tokens, dropped)))
            prefill = PrefillReports(streams, writer) if asked.stream and asked.reports_progress else None
            async for arrived in _merged(streams, lambda: _earliest(reply.keep_alive_due(), prefill and prefill.due)):
                if arrived is None:
                    await reply.wait(prefill.look() if prefill else [])
                    continue
                prompt, piece = arrived
                if prefill:
                    await reply.events(prefill.end(prompt))
                if facts.first_token_seconds is None:
                    facts.first_token_seconds = perf_counter() - begin
                    self._metrics.first_token(self._wire.url, facts.first_token_seconds)
                out += len(piece.token_ids)
                facts.completion_tokens = out
                if asked.stream:
                    await reply.events(writer.chunk(piece, prompt))
                elif asked.follows:
                    writer.chunk(piece, prompt)
            results = [stream.result for stream in streams]
            for result in results:
                self._metrics.answered(name, result)
            if results:
                facts.cached_tokens = sum(result.timings.cached_tokens for result in results)
            if asked.stream:
                await reply.events(writer.end(results))
                await reply.end_stream()
            else:
                await reply.whole(writer.body(results), request, headers)


class _Reply:
    """Part of a response that has been sent; of a stream, also when: ``keep_alive_seconds`` later a keep-alive is
    due."""

    def __init__(self, send: Send, wire: Wire, facts: RequestFacts, keep_alive_seconds: float) -> None:
        self._send = send
        self._wire = wire
        self._facts = facts
        self._keep_alive_seconds = keep_alive_seconds
        self._sent_at: float | None = None
        self._began = False
        self._ended = False
        self.writer: ResponseWriter | None = None
        self.status = 499  # the client has left, unless something is sent

    async def whole(self, body: Any, request: Request, headers: Mapping[str, str]) -> None:
        self._began = self._ended = True
        self.status = 200
        await JSONResponse(body, headers=headers)(request.scope, request.receive, self._send)

    async def begin_stream(self, headers: Mapping[str, str]) -> None:
        self._began = True
        self.status = 200
        sent = {"content-type": self._wire.stream_format.media, "cache-control": "no-cache", **headers}
        pairs = [(name.lower().encode(), value.encode()) for name, value in sent.items()]
        await self._send({"type": "http.response.start", "status": 200, "headers": pairs})
        self._sent_at = asyncio.get_running_loop().time()

    async def events(self, events: Iterable[Event]) -> None:
        """One message for all of them."""
        await self._text("".join(map(self._wire.stream_format.text, events)))

    def keep_alive_due(self) -> float | None:
        """When to send the next one, by the clock of the event loop; None without a stream that has them."""
        if self._sent_at is None or not self._wire.stream_format.keep_alive:
            return None
        return self._sent_at + self._keep_alive_seconds

    async def wait(self, events: Sequence[Event]) -> None:
        """Send what tells that the answer is waited for: these, or a keep-alive that is due."""
        due = self.keep_alive_due()
        if events:
            await self.events(events)
        elif due is not None and due <= asyncio.get_running_loop().time():
            await self._text(self._wire.stream_format.keep_alive)

    async def _text(self, text: str) -> None:
        if text:
            await self._send(_body(text.encode(), more=True))
            self._sent_at = asyncio.get_running_loop().time()

    async def end_stream(self) -> None:
        self._ended = True
        await self._send(_body(b"", more=False))

    async def fail(self, error: ApiError, scope: Scope, receive: Receive) -> None:
        """Answer with ``error``, or end the stream with it."""
        if self._ended:
            return
        self.status = self._facts.status = error.status
        self._facts.error = LoggedError.of(error.code, error.param)
        if not self._began:
            self._began = self._ended = True
            body = self._wire.error_body(error)
            await JSONResponse(body, error.status, headers=error.headers)(scope, receive, self._send)
            return
        try:
            async with asyncio.timeout(_LAST_WORDS_SECONDS):
                if self.writer is not None:
                    await self.events(self.writer.failed(error))
                await self.end_stream()
        except (TimeoutError, OSError):
            pass


def _earliest(*times: float | None) -> float | None:
    return min((time for time in times if time is not None), default=None)


def _body(data: bytes, *, more: bool) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": more}


async def while_connected(answer: Coroutine[Any, Any, None], receive: Receive, token: CancelToken) -> None:
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


async def _merged(
    streams: Sequence[TextStream], due: Callable[[], float | None]
) -> AsyncGenerator[tuple[int, GenerationChunk] | None]:
    """The chunks of all streams as they come, each with the number of its stream.

    None is between them where none has come until ``due()``, by the clock of the event loop.
    """
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
            try:
                async with asyncio.timeout_at(due()):
                    at, item = await arrived.get()
            except TimeoutError:
                yield None
                continue
            if isinstance(item, BaseException):
                raise item
            if item is None:
                left -= 1
            else:
                yield at, item
    finally:
        for reader in readers:
            reader.cancel()


def _threads_for(asked: WireRequest, options: GenerationOptions) -> WorkThreads:
    """The threads in which a request is prepared: compiling a constraint may take long."""
    tools = any(isinstance(prompt, ChatPrompt) and prompt.tools for prompt in asked.prompts)
    constrained = tools or options.grammar is not None or options.response_format is not None
    return COMPILING if constrained else PREPARING


def _start(llm: LLM, asked: WireRequest, options: GenerationOptions, token: CancelToken) -> list[TextStream]:
    """Tokenize all prompts and submit them. They run in one batch, and take turns as one request."""
    if not asked.generates:
        llm.check_options(options)
        return []
    prompts = [one if isinstance(one, str | list | ChatPrompt) else one.resolve(llm) for one in asked.prompts]
    chat, texts = prompts[0], [one for one in prompts if not isinstance(one, ChatPrompt)]
    if not isinstance(chat, ChatPrompt):
        return llm.stream_all(texts, options, cancel=token)
    return [
        llm.stream_chat(
            chat.conversation,
            options,
            tools=chat.tools,
            tool_choice=chat.tool_choice,
            parallel_tool_calls=chat.parallel_tool_calls,
            cancel=token,
        )
    ]
