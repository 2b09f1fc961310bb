"""Slow and hostile clients on real sockets: each is ended within its limit, and others are served meanwhile."""

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Mount, Route
from starlette.types import Receive, Scope, Send
from uvicorn.server import ServerState

from edgegen.server.app import WIRES, create_app
from edgegen.server.http.api_error import ApiError
from edgegen.server.http.connection import ConnectionLimits
from edgegen.server.http.json_body import read_json
from edgegen.server.http.options import MOST_HEADER_BYTES, ServerOptions
from edgegen.server.runner import server_of
from tests.runtime.models import RandomGraphs, fake_llm
from tests.runtime.server.sockets import connection, drip, get, on_socket, until_closed
from tests.waiting import PATIENCE_S, until

pytestmark = pytest.mark.slow

NEVER = 10 * int(PATIENCE_S)
PIECE = b"x" * 50_000
HEAD = b"HTTP/1.1\r\nHost: localhost\r\n"


def limits(
    *, header_seconds: float = NEVER, idle_seconds: int = NEVER, write_seconds: float = NEVER, connections: int = 1000
) -> ConnectionLimits:
    """Only what is given ends anything."""
    return ConnectionLimits(header_seconds, idle_seconds, write_seconds, connections)


@dataclass
class Flood:
    """An answer without end, which stops when its client has left; or one of a given number of pieces."""

    pieces: int | None = None
    sent: int = 0
    over: threading.Event = field(default_factory=threading.Event)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        request = Request(scope, receive)
        while self.pieces is None or self.sent < self.pieces:
            await send({"type": "http.response.body", "body": PIECE, "more_body": True})
            self.sent += 1
            if self.sent % 20 == 0 and await request.is_disconnected():
                break
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        self.over.set()


@pytest.fixture
def flood() -> Flood:
    return Flood()


@pytest.fixture
def app(tmp_path: Path, flood: Flood) -> Starlette:
    """The real application, and beside it a route whose bodies are slow at once, and an endless answer."""

    async def slow_body(request: Request) -> Response:
        try:
            return JSONResponse(await read_json(request, dict, seconds=0.2))
        except ApiError as error:
            return error.response()

    served = create_app({"fake": fake_llm(tmp_path, RandomGraphs())}, ServerOptions())
    routes = [Route("/slow", slow_body, methods=["POST"]), Mount("/flood", flood), Mount("/", served)]
    return Starlette(routes=routes)


@pytest.fixture
def served(app: Starlette) -> Iterator[tuple[str, int]]:
    with on_socket(app, limits(header_seconds=0.3)) as address:
        yield address


def test_headers_byte_by_byte_are_ended(served: tuple[str, int]) -> None:
    with connection(served) as slow:
        slow.sendall(b"GET /health " + HEAD)
        assert b"200 OK" in get(served)
        assert drip(slow, b"X-More: y\r\n") == b""
    assert b"200 OK" in get(served)


def test_a_request_of_two_lengths_is_refused_and_ends_the_connection(served: tuple[str, int]) -> None:
    """Another server before this one may read another length, and take the rest for a request of its own."""
    with connection(served) as two:
        lengths = b"Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n"
        two.sendall(b"POST /tokenize " + HEAD + lengths + b"2\r\n{}\r\n0\r\n\r\nGET /health " + HEAD + b"\r\n")
        said = until_closed(two)
    assert said.startswith(b"HTTP/1.1 400 ")
    assert said.count(b"HTTP/1.1") == 1
    assert b"ambiguous_length" in said


def test_a_client_that_says_nothing_is_ended(served: tuple[str, int]) -> None:
    with connection(served) as silent:
        assert b"200 OK" in get(served)
        assert until_closed(silent) == b""


def test_the_second_request_of_a_connection_has_the_same_limit(served: tuple[str, int]) -> None:
    with connection(served) as slow:
        slow.sendall(b"GET /health " + HEAD + b"\r\nG")
        said = drip(slow, b"ET /health")
    assert said.count(b"200 OK") == 1


def test_a_request_in_time_is_not_ended_by_the_limit_of_headers(served: tuple[str, int]) -> None:
    """The headers are complete; the body has a limit of its own, which is shorter here than the test is patient."""
    body = b'{"a": 1}'
    with connection(served) as client:
        client.sendall(b"POST /slow " + HEAD + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body))
        for byte in body:
            client.sendall(bytes([byte]))
        assert until_closed(client).endswith(b'{"a":1}')


def test_an_endless_header_is_ended(app: Starlette) -> None:
    """By its size: it may be sent as fast as can be."""
    with on_socket(app, limits()) as address, connection(address) as hostile:
        hostile.sendall(b"GET /health " + HEAD + b"X-Endless: ")
        sent = 0
        try:
            while sent < 100 * MOST_HEADER_BYTES:
                hostile.sendall(b"x" * 1024)
                sent += 1024
        except ConnectionError:
            pass
        assert sent < 100 * MOST_HEADER_BYTES or b"400 Bad Request" in until_closed(hostile)
        assert b"200 OK" in get(address)


@pytest.mark.parametrize(("extra", "status"), [(0, 200), (1, 431), (9 * MOST_HEADER_BYTES, 431)])
def test_size_of_headers(app: Starlette, extra: int, status: int) -> None:
    names = len("/health" + "Host" + "localhost" + "Connection" + "close" + "X-Large")
    with on_socket(app, limits()) as address, connection(address) as client:
        large = b"x" * (MOST_HEADER_BYTES - names + extra)
        client.sendall(b"GET /health " + HEAD + b"Connection: close\r\nX-Large: " + large + b"\r\n\r\n")
        said = until_closed(client)
    # What does not arrive at once is ended while it is incomplete.
    assert said.startswith(b"HTTP/1.1 %d" % status) or (extra > MOST_HEADER_BYTES and b" 400 " in said)


def test_a_slow_body_is_refused_with_408_and_its_rest_is_not_waited_for(app: Starlette) -> None:
    with on_socket(app, limits(idle_seconds=1)) as address, connection(address) as slow:
        slow.sendall(b"POST /slow " + HEAD + b"Content-Length: 100000\r\n\r\n")
        said = drip(slow, b"{")
        assert b"200 OK" in get(address)
    assert b"408 Request Timeout" in said
    assert b'"body_too_slow"' in said


@pytest.mark.parametrize("path", [*(wire.url for wire in WIRES), "/v1/embeddings"])
def test_a_client_that_leaves_amid_its_body_is_not_logged(
    app: Starlette, path: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Who may connect could fill a log otherwise, and stop a server whose log has no reader."""
    with on_socket(app, limits()) as address:
        with connection(address) as left:
            left.sendall(b"POST " + path.encode() + b" " + HEAD + b'Content-Length: 100\r\n\r\n{"model"')
        counted = f'path="{path}",status="499"}} 1.0'.encode()
        assert until(lambda: counted in get(address, "/metrics"))
    assert caplog.records == []


@pytest.mark.parametrize(
    "malformed",
    [
        b"\0\0\0\r\n\r\n",
        b"GET /health " + HEAD + b"Upgrade: h2c\r\nConnection: Upgrade, close\r\n\r\n",
        b"POST /slow " + HEAD + b"Transfer-Encoding: chunked\r\n\r\nZZZ\r\n",
        b"POST /v1/completions " + HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}XX",
        b"POST /v1/completions HTTP/1.1\r\nHost: elsewhere\r\nTransfer-Encoding: chunked\r\n\r\nZZZ\r\n",
    ],
)
def test_malformed_requests_are_not_logged(
    app: Starlette, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str], malformed: bytes
) -> None:
    with on_socket(app, limits(idle_seconds=1)) as address:
        with connection(address) as hostile:
            hostile.sendall(malformed)
            assert until_closed(hostile).startswith(b"HTTP/1.1 ")
        assert b"200 OK" in get(address)
    assert caplog.records == []
    assert capfd.readouterr() == ("", "")


def test_a_body_that_is_malformed_behind_its_answer_is_not_logged(
    app: Starlette, caplog: pytest.LogCaptureFixture
) -> None:
    with on_socket(app, limits()) as address:
        with connection(address) as hostile:
            hostile.sendall(b"POST /nowhere " + HEAD + b"Transfer-Encoding: chunked\r\n\r\n")
            assert hostile.recv(10).startswith(b"HTTP/1.1")
            hostile.sendall(b"ZZZ\r\n")
            until_closed(hostile)
        assert b"200 OK" in get(address)
    assert caplog.records == []


def test_the_body_of_a_request_that_is_refused_is_not_waited_for(app: Starlette) -> None:
    with on_socket(app, limits(idle_seconds=1)) as address, connection(address) as slow:
        slow.sendall(b"POST /nowhere " + HEAD + b"Content-Length: 100000\r\n\r\n")
        assert b"404 Not Found" in drip(slow, b"{")


def test_a_client_that_does_not_read_is_ended(app: Starlette, flood: Flood) -> None:
    short = limits(write_seconds=0.2)
    with on_socket(app, short) as address, connection(address, receive_buffer=4096) as deaf:
        deaf.sendall(b"GET /flood/ " + HEAD + b"\r\n")
        assert until(lambda: flood.sent > 0)
        assert b"200 OK" in get(address)
        assert flood.over.wait(PATIENCE_S)


def test_a_client_that_reads_slowly_gets_everything(app: Starlette, flood: Flood) -> None:
    """Reading is what counts, and not how long an answer takes."""
    flood.pieces = 60
    short = limits(write_seconds=0.5)
    with on_socket(app, short) as address, connection(address, receive_buffer=4096) as slow:
        slow.sendall(b"GET /flood/ " + HEAD + b"Connection: close\r\n\r\n")
        said = until_closed(slow)
    assert said.count(b"x") == flood.pieces * len(PIECE)


class DeafTransport(asyncio.Transport):
    """A connection whose client takes a part of what waits each time that it is asked for, and then nothing."""

    def __init__(self, *waiting: int) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})
        self._waiting = [*waiting]
        self._closing = False
        self.aborted = asyncio.Event()
        self.checks = 0

    def get_write_buffer_size(self) -> int:
        self.checks += 1
        return self._waiting.pop(0) if len(self._waiting) > 1 else self._waiting[0]

    def write(self, data: bytes | bytearray | memoryview) -> None: ...

    def close(self) -> None:
        self._closing = True

    def is_closing(self) -> bool:
        return self._closing

    def abort(self) -> None:
        self.aborted.set()


@pytest.mark.parametrize(
    "head", ["HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "HTTP/1.1\r\nHost: a\r\n\r\n", "nonsense\r\n\r\n"]
)
def test_what_is_left_of_an_answer_does_not_keep_a_connection(head: str) -> None:
    """It is closed after the answer, after the time between requests, or as no request of HTTP."""

    async def leave() -> int:
        server = server_of(PlainTextResponse("hello"), ServerOptions(), limits(idle_seconds=0, write_seconds=0.01))
        server.config.load()
        protocol: Any = server.config.http_protocol_class
        made, transport = protocol(server.config, ServerState(), {}), DeafTransport(900, 600, 300)
        made.connection_made(transport)
        made.data_received(f"GET / {head}".encode())
        async with asyncio.timeout(PATIENCE_S):
            await transport.aborted.wait()
        made.connection_lost(None)
        return transport.checks

    assert asyncio.run(leave()) == 4


def test_more_connections_than_may_be_are_refused(app: Starlette) -> None:
    with on_socket(app, limits(connections=3)) as address, connection(address), connection(address):
        assert until(lambda: b"503 Service Unavailable" in get(address))
