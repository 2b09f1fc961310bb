"""Runs the server with uvicorn until it is told to stop."""

import asyncio
import signal
import socket
import threading
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from edgegen.errors import EdgegenError
from edgegen.server.connection import ConnectionLimits, timed_protocol
from edgegen.server.options import MOST_HEADER_BYTES, ServerOptions

_BACKLOG = 256

_IDLE_SECONDS = 1.0
"""Between two looks at the date, which answers have in a header."""


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
        found.setsockopt(socket.SOL_SOCKET, address_option(), 1)
        found.bind(address)
        found.listen(_BACKLOG)
    except OSError as error:
        found.close()
        raise ListenError(f"cannot listen on {where}: {error.strerror}: give another --host or --port.") from None
    found.setblocking(False)
    return found


def address_option(names: Any = socket) -> int:
    """The option by which a restarted server may listen again at once, and no other process beside it.

    On Windows SO_REUSEADDR would let another process take the port over while it is listened on.
    """
    return getattr(names, "SO_EXCLUSIVEADDRUSE", None) or names.SO_REUSEADDR


def stop_signals(names: object = signal) -> tuple[signal.Signals, ...]:
    """What ends the server: SIGINT, SIGTERM and, on Windows, SIGBREAK, which a console that is closed is too."""
    return tuple(getattr(names, name) for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(names, name))


def run(app: ASGIApp, options: ServerOptions, listening: socket.socket, on_start: Callable[[], object]) -> None:
    """Serve until SIGTERM, SIGINT or SIGBREAK; running requests may go on for ``grace_seconds``.

    ``on_start`` is called once these signals end the server with a return, and no longer kill it.

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
        log_config=None,  # its loggers are among those of log_to
        log_level="error",  # warnings are of malformed requests: whoever may connect could fill a log with them
        access_log=False,  # the RequestLog has a line for each request, without what clients send
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
    """Ends with a return on SIGTERM, SIGINT and SIGBREAK, in place of dying of the signal."""

    interrupted = False
    stopped_by = stop_signals()
    _wake: Callable[[], object] | None = None

    def stop(self) -> None:
        """End as at a signal; may be called from any thread."""
        self.should_exit = True
        if (wake := self._wake) is not None:
            with suppress(RuntimeError):  # it has ended
                wake()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        super().handle_exit(sig, frame)
        self.stop()

    async def main_loop(self) -> None:
        """Wait for the end; uvicorn's own looks for it ten times a second, for which an idle processor wakes up."""
        loop, woken = asyncio.get_running_loop(), asyncio.Event()
        self._wake = lambda: loop.call_soon_threadsafe(woken.set)
        while not await self.on_tick(0):
            with suppress(TimeoutError):
                async with asyncio.timeout(_IDLE_SECONDS):
                    await woken.wait()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self._stop) for number in self.stopped_by}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _stop(self, number: int, frame: FrameType | None) -> None:
        """The second SIGINT ends what runs."""
        self.interrupted |= number == signal.SIGINT
        self.handle_exit(number, frame)
