"""A server with the web page and a scripted model, in a thread of its own: what it says depends on what it is told."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator
from typing import Any

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from edgegen.server.page import page_routes
from tests.waiting import PATIENCE_S, until

KEY = "secret"
CHAT, BASE = "chat-int8", "stories-int8"
NOTE = "a story-teller: begin a story, such as <b>this</b>"
PARITY = {
    "text": "sample text",
    "tokens": 512,
    "mean_kl": 0.00123,
    "top1_agreement": 0.987,
    "perplexity_change": 0.0042,
    "perplexity_change_error": 0.003,
}

TOO_LONG = "prompt is too long: the prompt has 2000 tokens, but this model's context is 1024: shorten it."

HOSTILE = """\
<script>window.hacked = 1</script><img src=x onerror="window.hacked = 2"><style>body { display: none }</style>
<iframe src="http://example.com/"></iframe> ![spy](http://example.com/spy.png) [click](http://example.com/click)
[run](javascript:window.hacked=3) <svg onload="window.hacked=4"></svg> <a href="http://example.com">x</a>
$\\text{<img src=x onerror="window.hacked = 6">} \\href{javascript:window.hacked=7}{x}$ $<script>$

```html"><script>window.hacked=5</script>
<b>code</b>
```
"""
TABLE = (
    "## A table\n\n| fruit | color |\n|---|---|\n| apple | **red** |\n\n```python\nprint('hi')\n```\n\nand `code`.\n"
)


ESSAY = [
    *(f"Paragraph {number} is about *[fruit]* {number}, and goes on to its end." for number in range(12)),
    "- one\n\n- two\n\n  in two parts",
    "```python\n" + "".join(f"line({number})\n\n" for number in range(20)) + "```",
    *(f"{number}. later, at {number}" for number in range(3)),
    "[fruit]: https://example.com/fruit",
]
"""Blocks of markdown; what they are joined with is a blank line."""


ANSWERS = {
    "notes": "A claim[^1], and another[^b].\n\nA second paragraph[^1].\n\n- a list\n\n"
    "[^1]: The note.\n[^b]: The *other*.\n",
    "tasks": "- [ ] to do\n- [x] done\n- neither\n",
    "hebrew": "שלום עולם\n\n- אחת\n- שתיים\n\nleft to right\n",
    "json": '{"a": [1.0, 12345678901234567890, {}], "b":"x, {y}: \\"z\\""}',
    "think": "So.",
}
TOKENS_PER_PIECE = 2


class FakeServer:
    """Attributes:
    bodies: of the requests for text so far.
    disconnected: set when a reader of an endless answer has gone.
    needs_key: whether requests need the key.
    unloaded: models that are to be loaded before they are used; loading waits for ``may_load``, and fails with
        ``load_problem``.
    may_answer: set to let the answer to "slow" begin, of whose prompt 40% has been read, or to "busy", which waits.
    thinking: what the chat model's template can be told of thinking.
    offers: the catalogue of models that may be pulled.
    pulled: lines of the answer to a pull; ``may_pull`` lets the last of them be said, and a model be there.
    """

    def __init__(self) -> None:
        self.bodies: list[dict[str, Any]] = []
        self.url = ""
        self.disconnected = threading.Event()
        self.needs_key = False
        self.unloaded = set[str]()
        self.may_load = threading.Event()
        self.load_problem = ""
        self.may_answer = threading.Event()
        self.thinking: dict[str, Any] = {"switch": False, "efforts": [], "thinks": False}
        self.offers: list[dict[str, Any]] = []
        self.pulled: list[dict[str, Any]] = []
        self.may_pull = threading.Event()
        self.left = threading.Event()
        self._there = [CHAT, BASE]
        routes = [
            Route("/models/catalogue", self._catalogue),
            Route("/api/pull", self._pull, methods=["POST"]),
            Route("/models", self._models),
            Route("/models/load", self._load, methods=["POST"]),
            Route("/props", self._props),
            Route("/v1/chat/completions", self._chat, methods=["POST"]),
            Route("/v1/completions", self._completion, methods=["POST"]),
            Route("/v1/messages/count_tokens", self._count, methods=["POST"]),
            Route("/tokenize", self._count, methods=["POST"]),
        ]
        app = Starlette(routes=[*page_routes(), *routes])
        config = uvicorn.Config(app, "127.0.0.1", 0, log_level="error", lifespan="off", ws="none")
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run)

    def __enter__(self) -> "FakeServer":
        self._thread.start()
        assert until(lambda: self._server.started)
        self.url = f"http://127.0.0.1:{self._server.servers[0].sockets[0].getsockname()[1]}/"
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self._server.should_exit = self._server.force_exit = True
        self._thread.join()

    def _refused(self, request: Request) -> Response | None:
        if self.needs_key and request.headers.get("authorization") != f"Bearer {KEY}":
            return _error(401, "this server needs an API key: send it as a header.", code="invalid_api_key")
        return None

    async def _models(self, request: Request) -> Response:
        data = [
            {"id": name, "status": {"value": "unloaded" if name in self.unloaded else "loaded"}} for name in self._there
        ]
        return self._refused(request) or JSONResponse({"object": "list", "data": data})

    async def _catalogue(self, request: Request) -> Response:
        told = {"object": "list", "pulls_allowed": bool(self.offers), "data": self.offers}
        return self._refused(request) or JSONResponse(told)

    async def _pull(self, request: Request) -> Response:
        name = (await request.json())["model"]

        async def lines() -> AsyncIterator[str]:
            try:
                for line in self.pulled[:-1]:
                    yield json.dumps(line) + "\n"
                await asyncio.to_thread(self.may_pull.wait, PATIENCE_S)
                if "error" not in self.pulled[-1]:
                    self._there.append(name)
                yield json.dumps(self.pulled[-1]) + "\n"
            finally:
                self.left.set()

        return self._refused(request) or StreamingResponse(lines(), media_type="application/x-ndjson")

    async def _load(self, request: Request) -> Response:
        name = (await request.json())["model"]
        await asyncio.to_thread(self.may_load.wait, PATIENCE_S)
        if self.load_problem:
            return _error(500, self.load_problem)
        self.unloaded.discard(name)
        return JSONResponse({"success": True})

    async def _props(self, request: Request) -> Response:
        model = request.query_params["model"]
        assert model not in self.unloaded
        note = NOTE if model == BASE else None
        about = {
            "note": note,
            "parity": PARITY,
            "parameters": 124_439_808,
            "quantization": "int8",
            "thinking": self.thinking if model == CHAT else {},
            "generation_options": {"do_sample": True, "temperature": 0.6, "top_p": 0.9} if model == CHAT else {},
        }
        return self._refused(request) or JSONResponse(
            {"model": model, "context": 1024, "chat_template": "{{ messages }}" if model == CHAT else "", **about}
        )

    async def _chat(self, request: Request) -> Response:
        body = await request.json()
        assert body["model"] not in self.unloaded
        self.bodies.append(body)
        told = body["messages"][-1]["content"].rpartition("\n\n")[2]  # after the files
        if told == "fail":
            return _error(503, "32 requests are waiting already.", {"Retry-After": "2"})
        if told == "full":
            return _error(400, TOO_LONG, code="context_length_exceeded")
        if told == "wrong":
            return _error(400, "top_p must be at most 1.")
        answers = {"hostile": HOSTILE, "table": TABLE, "essay": "\n\n".join(ESSAY), **ANSWERS}
        text = answers.get(told, f"Answer {len(self.bodies)} to **{told}**.")
        headers = {"Edgegen-Dropped-Messages": "4"} if told == "long" else None
        return StreamingResponse(self._stream(text, told, chat=True), media_type="text/event-stream", headers=headers)

    async def _count(self, request: Request) -> Response:
        """A token for each character of what is counted."""
        body = await request.json()
        whole = [body[name] for name in ("prompt", "content") if name in body]
        texts = whole or [message["content"] for message in body["messages"]]
        return JSONResponse({"input_tokens": len("".join(texts)), "count": len("".join(texts))})

    async def _completion(self, request: Request) -> Response:
        body = await request.json()
        self.bodies.append(body)
        text = f" and continuation {len(self.bodies)} follows."
        return StreamingResponse(self._stream(text, body["prompt"], chat=False), media_type="text/event-stream")

    async def _stream(self, text: str, told: str, *, chat: bool) -> AsyncIterator[str]:
        yield _progress(cache=0, processed=0)
        if told in ("slow", "busy"):
            yield _progress(cache=500, processed=700) if told == "slow" else _progress(cache=0, processed=0)
            await asyncio.to_thread(self.may_answer.wait, PATIENCE_S)
        pieces = [text[i : i + 7] for i in range(0, len(text), 7)]
        if told == "think":
            yield _event({"delta": {"reasoning_content": "First **this**.\n\n- then that"}})
        for at, piece in enumerate(pieces, 1):
            if told == "essay":
                await asyncio.sleep(0.01)  # for the page to paint in between
            yield _event({"delta": {"content": piece}} if chat else {"text": piece}, at * TOKENS_PER_PIECE)
        if told == "break":
            yield f"data: {json.dumps({'error': {'message': 'the model broke down'}})}\n\n"
            return
        if told == "endless":
            try:
                await asyncio.Event().wait()
            finally:
                self.disconnected.set()
        reason = "length" if told in ("cut", "filled") else "stop"
        yield _event({"delta": {"content": ""}, "text": "", "finish_reason": reason})
        usage = {
            "prompt_tokens": 1024 if told == "filled" else 20,
            "completion_tokens": TOKENS_PER_PIECE * len(pieces),
            "prompt_tokens_details": {"cached_tokens": 8},
        }
        yield f"data: {json.dumps({'choices': [], 'usage': usage})}\n\ndata: [DONE]\n\n"


def _progress(*, cache: int, processed: int) -> str:
    progress = {"total": 1000, "cache": cache, "processed": processed, "time_ms": 5 * bool(processed)}
    return f"data: {json.dumps({'choices': [{'index': 0, 'delta': {}}], 'prompt_progress': progress})}\n\n"


def _event(choice: dict[str, Any], tokens: int = 0) -> str:
    """A piece of an answer; ``tokens`` so far, at ten a second."""
    timings = {"cache_n": 8, "prompt_n": 12, "predicted_n": tokens, "predicted_ms": 100 * (tokens - 1)}
    told: dict[str, Any] = {"choices": [{"index": 0, "finish_reason": None} | choice]}
    return f"data: {json.dumps(told | ({'timings': timings} if tokens else {}))}\n\n"


def _error(status: int, message: str, headers: dict[str, str] | None = None, code: str | None = None) -> Response:
    error = {"message": message, "type": "server_error", "param": None, "code": code}
    return JSONResponse({"error": error}, status, headers)
