"""A server on a real socket, in a thread of the test."""

import socket
import threading
from collections.abc import Generator
from contextlib import contextmanager

from starlette.types import ASGIApp

from edgegen.server.http.connection import ConnectionLimits
from edgegen.server.http.listening import listen
from edgegen.server.http.options import ServerOptions
from edgegen.server.runner import server_of
from tests.waiting import PATIENCE_S, until


@contextmanager
def on_socket(
    app: ASGIApp, limits: ConnectionLimits | None = None, most_open: int | None = None
) -> Generator[tuple[str, int]]:
    """The address of ``app`` while it is served."""
    options = ServerOptions(port=0, grace_seconds=1)
    with listen(options) as listening:
        server = server_of(app, options, limits, most_open)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            assert until(lambda: server.started)
            yield listening.getsockname()
        finally:
            server.stop()
            thread.join(PATIENCE_S)


@contextmanager
def connection(address: tuple[str, int], *, receive_buffer: int | None = None) -> Generator[socket.socket]:
    """A client's socket; a small ``receive_buffer`` makes the server notice soon that the client does not read."""
    with socket.socket() as made:
        made.settimeout(PATIENCE_S)
        if receive_buffer is not None:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        made.connect(address)
        yield made


def until_closed(made: socket.socket) -> bytes:
    """All that the server sends before it ends the connection."""
    received = bytearray()
    try:
        while piece := made.recv(1 << 16):
            received += piece
    except ConnectionError:
        pass
    return bytes(received)


def drip(made: socket.socket, data: bytes) -> bytes:
    """Send ``data`` again and again, byte by byte, until the server ends the connection; what it said."""
    received = bytearray()
    made.settimeout(0.005)  # between two bytes
    try:
        while True:
            for byte in data:
                made.sendall(bytes([byte]))
                try:
                    piece = made.recv(1 << 16)
                except TimeoutError:
                    continue
                if not piece:
                    return bytes(received)
                received += piece
    except ConnectionError:
        return bytes(received)


def get(address: tuple[str, int], path: str = "/health") -> bytes:
    """The whole answer to a request of another client."""
    with connection(address) as made:
        made.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        return until_closed(made)
