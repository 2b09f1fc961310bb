"""Runs the server with uvicorn until it is told to stop."""

import signal
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from edgegen.errors import EdgegenError
from edgegen.server.connection import ConnectionLimits, timed_protocol
from edgegen.server.options import MOST_HEADER_BYTES, ServerOptions

_BACKLOG = 256


class ListenError(EdgegenError):
    """The address cannot be listened on."""


def listen(options: ServerOptions) -> socket.socket:
    """A socket that listens where ``options`` say; port 0 is any free one.

    Raises:
        ListenError: the address is taken, or not this machine's.
    """
    where = f"{options.host}:{options.port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ListenError(f"cannot listen on {where}: {error.strerror or error}.") from None
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(_BACKLOG)
    except OSError as error:
        found.close()
        raise ListenError(f"cannot listen on {where}: {error.strerror}: give another --host or --port.") from None
    found.setblocking(False)
    return found


def run(app: ASGIApp, options: ServerOptions, listening: socket.socket, on_start: Callable[[], object]) -> None:
    """Serve until SIGTERM or SIGINT; running requests may go on for ``grace_seconds``.

    ``on_start`` is called once both signals end the server with a return, and no longer kill it.

    Raises:
        KeyboardInterrupt: it was SIGINT.
    """
    server = server_of(app, options)
    with server.capture_signals():
        on_start()
        server.run(sockets=[listening])
    if server.interrupted:
        raise KeyboardInterrupt


def server_of(app: ASGIApp, options: ServerOptions, limits: ConnectionLimits | None = None) -> "Server":
    """A server that does not run yet."""
    limits = limits or ConnectionLimits()
    config = uvicorn.Config(
        app,
        http=timed_protocol(limits),
        log_level="error",  # warnings are of malformed requests: whoever may connect could fill a log with them
        access_log=False,  # a line for each request, with what clients send
        server_header=False,
        lifespan="off",
        ws="none",
        limit_concurrency=limits.connections,
        timeout_keep_alive=limits.idle_seconds,
        timeout_graceful_shutdown=max(1, round(options.grace_seconds)),
        # Incomplete headers end here; complete ones are measured without their punctuation by the AccessGuard.
        h11_max_incomplete_event_size=2 * MOST_HEADER_BYTES,
    )
    return Server(config)


class Server(uvicorn.Server):
    """Ends with a return on SIGTERM and SIGINT, in place of dying of the signal."""

    interrupted = False

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """The second SIGINT ends what runs."""
        self.interrupted |= number == signal.SIGINT
        self.handle_exit(number, frame)
