"""As many connections as there are descriptors for: those without a request make room, and others wait."""

import logging
import socket
import threading
from contextlib import ExitStack
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send

from edgegen.server.app import create_app
from edgegen.server.http.connection import ConnectionLimits
from edgegen.server.http.listening import listen
from edgegen.server.http.open_connections import OpenConnections, most_connections
from edgegen.server.http.options import ServerOptions
from edgegen.server.runner import server_of
from tests.runtime.models import RandomGraphs, fake_llm
from tests.runtime.server.sockets import connection, get, on_socket, until_closed
from tests.systems import needs_posix
from tests.waiting import PATIENCE_S, until

HALF = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Len"
LONG = ConnectionLimits(header_seconds=10_000.0, idle_seconds=10_000, write_seconds=10_000.0)


class Client:
    """A connection that remembers whether it was ended."""

    def __init__(self) -> None:
        self.ended = False

    def abort(self) -> None:
        self.ended = True


class Door:
    def __init__(self) -> None:
        self.said = list[str]()

    def pause(self) -> None:
        self.said.append("pause")

    def resume(self) -> None:
        self.said.append("resume")


def test_the_one_that_has_waited_longest_makes_room() -> None:
    door, clients = Door(), [Client() for _ in range(5)]
    ones = OpenConnections(3, door.pause, door.resume)
    for client in clients[:3]:
        ones.enter(client)
    ones.work(clients[0])
    for client in clients[3:]:
        ones.enter(client)
    assert [client.ended for client in clients] == [False, True, True, False, False]
    ones.wait(clients[0])
    ones.enter(Client())
    assert clients[3].ended  # the first began to wait after it
    assert not clients[0].ended
    assert door.said == []


def test_where_all_have_requests_nobody_is_accepted_until_one_ends() -> None:
    door, clients = Door(), [Client() for _ in range(4)]
    ones = OpenConnections(2, door.pause, door.resume)
    for client in clients:
        ones.enter(client)
        ones.work(client)
    assert door.said == ["pause"]
    for client in clients[:2]:
        ones.leave(client)
    assert door.said == ["pause"]
    ones.leave(clients[2])
    assert door.said == ["pause", "resume"]
    assert not any(client.ended for client in clients)


def test_it_is_told_in_a_line_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now = 0.0
    ones = OpenConnections(1, clock=lambda: now)
    with caplog.at_level(logging.WARNING, "edgegen.server"):
        for _ in range(1000):
            ones.enter(Client())
        assert len(caplog.records) == 1
        now = 60.0
        ones.enter(Client())
    assert len(caplog.records) == 2
    assert "1 connections are open, as many as the limit of file descriptors allows" in caplog.messages[0]


@needs_posix("limits of file descriptors")
def test_the_limit_leaves_descriptors_for_all_else(monkeypatch: pytest.MonkeyPatch) -> None:
    import resource

    for soft, most in [(256, 160), (1024, 928), (100, 25), (resource.RLIM_INFINITY, None)]:
        limits = (soft, soft)

        def told(which: int, limits: tuple[int, int] = limits) -> tuple[int, int]:
            assert which == resource.RLIMIT_NOFILE
            return limits

        monkeypatch.setattr(resource, "getrlimit", told)
        assert most_connections() == most


def test_half_sent_headers_keep_nobody_out(tmp_path: Path) -> None:
    app = create_app({"fake": fake_llm(tmp_path, RandomGraphs())}, ServerOptions())
    with on_socket(app, LONG, most_open=10) as address, ExitStack() as stack:
        for _ in range(60):
            stack.enter_context(connection(address)).sendall(HALF)
        for _ in range(20):
            assert b"200 OK" in get(address)


def test_who_waits_for_room_is_served_when_a_request_ends(tmp_path: Path) -> None:
    """All connections have a request whose body does not come; no client is accepted before one of them leaves."""
    app = create_app({"fake": fake_llm(tmp_path, RandomGraphs())}, ServerOptions())
    most, begun = 4, b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n"
    with on_socket(app, LONG, most_open=most) as address, ExitStack() as stack:
        busy = list[socket.socket]()
        for _ in range(most + 1):
            client = stack.enter_context(connection(address))
            busy.append(client)
            client.sendall(begun)
            assert client.recv(100).startswith(b"HTTP/1.1 100")  # the application waits for the body
        late = stack.enter_context(socket.create_connection(address))
        late.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
        late.settimeout(0.2)
        with pytest.raises(TimeoutError):
            late.recv(1)
        for client in busy[:2]:
            client.close()
        late.settimeout(PATIENCE_S)
        assert b"200 OK" in until_closed(late)
        assert until(lambda: b"200 OK" in get(address))


@needs_posix("event loop that accepts connections when a socket is readable")
def test_connections_that_are_accepted_while_the_server_ends_are_closed() -> None:
    """The first request's handler connects others and stops the server: both happen in one turn of the event loop."""
    late = list[socket.socket]()

    async def stops(scope: Scope, receive: Receive, send: Send) -> None:
        for _ in range(3):
            made = socket.create_connection(address)
            made.settimeout(PATIENCE_S)
            late.append(made)
        server.stop()

    with listen(ServerOptions(port=0, grace_seconds=1)) as listening:
        address = listening.getsockname()
        server = server_of(stops, ServerOptions(port=0, grace_seconds=1))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        assert until(lambda: server.started)
        with connection(address) as first:
            first.sendall(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
            thread.join(PATIENCE_S)
        for made in late:
            with made:
                assert until_closed(made) == b""
        assert len(late) == 3
