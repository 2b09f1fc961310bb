"""Running requests: a client that leaves, a queue that is full, a request out of time, a model that fails."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from starlette.types import ASGIApp

from edgegen.llm import LLM
from edgegen.server.app import create_app
from edgegen.server.http.options import ServerOptions
from tests.runtime.models import FailAt, FakeGraphs, Gate, RandomGraphs, digest_of, fake_llm
from tests.runtime.server.material import COMPLETION, error_of, events, fake_client
from tests.runtime.server.sleepy_loop import NIGHT_S, SleepyLoop, sleep_through
from tests.waiting import PATIENCE_S

ENDLESS: dict[str, Any] = {"prompt": "Once", "max_tokens": 500, "eos_token_id": []}


def app_of(llm: LLM, options: ServerOptions | None = None) -> ASGIApp:
    return create_app({"fake": llm}, options or ServerOptions())


class Exchange:
    """One request to an ASGI application, whose client leaves when it is told to."""

    def __init__(self, app: ASGIApp, body: dict[str, Any], path: str = COMPLETION) -> None:
        self._app = app
        self._path = path
        self._body: bytes | None = json.dumps(body).encode()
        self.left = asyncio.Event()
        self.sent = list[dict[str, Any]]()

    async def run(self) -> None:
        async with asyncio.timeout(PATIENCE_S):
            await self.answered()

    async def answered(self) -> None:
        scope = {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "POST",
            "scheme": "http",
            "path": self._path,
            "raw_path": self._path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(b"host", b"localhost")],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 8000),
        }
        await self._app(scope, self._receive, self._send)

    async def _receive(self) -> Any:
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        await self.left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        self.sent.append(message)


def test_a_client_that_leaves_a_stream_frees_its_slot(tmp_path: Path) -> None:
    """Within a step: no run begins after the one that is under way."""
    graphs = FakeGraphs(digest_of)
    llm = fake_llm(tmp_path, graphs)
    gate = Gate(graphs, 4)

    async def leave() -> None:
        exchange = Exchange(app_of(llm), ENDLESS | {"stream": True})
        running = asyncio.ensure_future(exchange.run())
        await asyncio.to_thread(gate.reached.wait, PATIENCE_S)
        exchange.left.set()
        await running

    asyncio.run(leave())
    assert len(graphs.runs) <= 4
    assert llm.generate("a", max_new_tokens=2).finish_reason == "length"


def test_a_client_that_leaves_before_its_whole_answer_frees_its_slot(tmp_path: Path) -> None:
    graphs = FakeGraphs(digest_of)
    llm = fake_llm(tmp_path, graphs)
    gate = Gate(graphs, 4)

    async def leave() -> Exchange:
        exchange = Exchange(app_of(llm), ENDLESS)
        running = asyncio.ensure_future(exchange.run())
        await asyncio.to_thread(gate.reached.wait, PATIENCE_S)
        exchange.left.set()
        await running
        return exchange

    assert asyncio.run(leave()).sent == []
    assert len(graphs.runs) <= 4


@pytest.mark.parametrize("stream", [False, True])
def test_a_request_out_of_time_is_ended(tmp_path: Path, stream: bool) -> None:
    graphs = FakeGraphs(digest_of)
    llm = fake_llm(tmp_path, graphs)
    Gate(graphs, 3)  # opened by the end of the run only

    exchange = Exchange(app_of(llm, ServerOptions(request_seconds=0.3)), ENDLESS | {"stream": stream})
    asyncio.run(exchange.run())
    text = b"".join(message.get("body", b"") for message in exchange.sent).decode()
    assert '"request_timeout"' in text
    assert exchange.sent[0]["status"] in ((200, 503) if stream else (503,))
    assert len(graphs.runs) <= 3


def test_a_stream_goes_on_after_the_computer_slept(tmp_path: Path) -> None:
    """Longer than a request may take: on Windows the clock of the event loop goes on meanwhile."""
    graphs = FakeGraphs(digest_of)
    gate = Gate(graphs, 3)
    app = app_of(fake_llm(tmp_path, graphs), ServerOptions(keep_alive_seconds=2 * NIGHT_S))
    exchange = Exchange(app, {"prompt": "Once", "max_tokens": 5, "eos_token_id": [], "stream": True})

    async def sleep_amid() -> None:
        running = asyncio.ensure_future(exchange.answered())
        await asyncio.to_thread(gate.reached.wait, PATIENCE_S)
        await sleep_through(NIGHT_S)
        gate.opened.set()
        await running

    with asyncio.Runner(loop_factory=SleepyLoop) as runner:
        runner.run(sleep_amid())
    text = b"".join(message.get("body", b"") for message in exchange.sent).decode()
    assert [chunk["choices"][0]["finish_reason"] for chunk in events(text)][-1] == "length"


def test_a_full_queue_refuses_with_503(tmp_path: Path) -> None:
    graphs = FakeGraphs(digest_of)
    gate = Gate(graphs, 1)
    app = create_app({"fake": fake_llm(tmp_path, graphs)}, ServerOptions(max_queue=1), running=1)

    async def ask() -> list[Exchange]:
        exchanges = [Exchange(app, {"prompt": "a", "max_tokens": 2}) for _ in range(5)]
        running = [asyncio.ensure_future(exchange.run()) for exchange in exchanges]
        await asyncio.to_thread(gate.reached.wait, PATIENCE_S)
        gate.opened.set()
        await asyncio.gather(*running)
        return exchanges

    first = [exchange.sent[0] for exchange in asyncio.run(ask())]
    assert sorted(message["status"] for message in first) == [200, 200, 503, 503, 503]
    for message in first:
        if message["status"] == 503:
            assert (b"retry-after", b"1") in message["headers"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_model_that_fails_is_an_error_of_the_server(tmp_path: Path, stream: bool) -> None:
    graphs = RandomGraphs()
    client = fake_client(tmp_path, graphs=graphs)
    graphs.before_run = FailAt(3, RuntimeError("secret detail"))
    response = client.post(COMPLETION, json={"prompt": "a", "max_tokens": 9, "stream": stream})
    text = response.text.removesuffix("\n\n").rpartition("data: ")[2] if stream else response.text
    error = json.loads(text)["error"]
    assert error["type"] == "server_error"
    assert "secret detail" not in response.text
    if not stream:
        assert response.status_code == 500
        error_of(response)
    graphs.before_run = lambda: None
    assert client.post(COMPLETION, json={"prompt": "a", "max_tokens": 2}).status_code == 200
