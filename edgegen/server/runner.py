"""Runs the server with uvicorn until it is told to stop."""

import asyncio
import logging
import signal
import socket
import sys
import threading
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

import uvicorn
from starlette.types import ASGIApp

from edgegen.server.http.connection import ConnectionLimits, timed_protocol
from edgegen.server.http.last_call import LastCall
from edgegen.server.http.listening import BACKLOG
from edgegen.server.http.open_connections import ACCEPTED_AT_ONCE, OpenConnections, most_connections
from edgegen.server.http.options import MOST_HEADER_BYTES, ServerOptions
from edgegen.system.systemd import notify

_SWITCH_SECONDS = 0.0005
"""After which a thread of Python lets others run. The engine's waits for its turn many times in a step, by default 5 ms
for each thread that is before it."""

_IDLE_SECONDS = 1.0
"""Between two looks at the date, which answers have in a header."""


def stop_signals(names: object = signal) -> tuple[signal.Signals, ...]:
    """Return the signals that end the server: SIGINT, SIGTERM and, on Windows, SIGBREAK, which closing a console sends
    too."""
    return tuple(getattr(names, name) for name in ("SIGINT", "SIGTERM", "SIGBREAK") if hasattr(names, name))


def run(
    app: ASGIApp,
    options: ServerOptions,
    listening: socket.socket,
    on_start: Callable[[], object],
    on_stop: Callable[[], object] = lambda: None,
    last_call: LastCall | None = None,
) -> None:
    """Serve until SIGTERM, SIGINT or SIGBREAK; running requests may go on for ``grace_seconds``.

    ``on_start`` is called once these signals end the server with a return, and no longer kill it; ``on_stop``, in the
    event loop, when one of them has come. ``last_call`` begins with the first of them.

    Raises:
        KeyboardInterrupt: it was SIGINT.
    """
    server = server_of(app, options)
    server.on_stop, server.last_call = on_stop, last_call
    sys.setswitchinterval(_SWITCH_SECONDS)
    with server.capture_signals():
        on_start()
        notify("READY=1")
        server.run(sockets=[listening])
    if server.interrupted:
        raise KeyboardInterrupt


def server_of(
    app: ASGIApp, options: ServerOptions, limits: ConnectionLimits | None = None, most_open: int | None = None
) -> "Server":
    """A server that does not run yet. ``most_open``: connections that are open; by default as descriptors allow."""
    limits = limits or ConnectionLimits()
    door = _Door()
    open_ones = OpenConnections(most_open or most_connections(), door.close, door.open)
    config = uvicorn.Config(
        app,
        http=timed_protocol(limits, open_ones),
        backlog=ACCEPTED_AT_ONCE,
        log_config=None,  # its loggers are among those of log_to
        log_level="error",  # warnings are of malformed requests: any client could fill a log with them
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
    server = Server(config)
    door.server = server
    return server


class _Door:
    """Lets a server accept connections, or not."""

    server: "Server | None" = None

    def close(self) -> None:
        if self.server is not None:
            self.server.pause_accepting()

    def open(self) -> None:
        if self.server is not None:
            self.server.resume_accepting()


class Server(uvicorn.Server):
    """Ends with a return on SIGTERM, SIGINT and SIGBREAK, in place of dying of the signal."""

    interrupted = False
    stopped_by = stop_signals()
    on_stop: Callable[[], object] | None = None
    last_call: LastCall | None = None
    _wake: Callable[[], object] | None = None
    _listening: Sequence[socket.socket] = ()
    _resuming: asyncio.Task[None] | None = None

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen on copies of ``sockets``: to close one stops accepting, while the system still takes connections."""
        self._listening = list(sockets or ())
        await super().startup([one.dup() for one in self._listening])
        for one in self._listening:
            one.listen(BACKLOG)  # as many wait as before: the copies' is how many are accepted at once
        asyncio.get_running_loop().set_exception_handler(_log_one_line)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End, and leave no connection: some were accepted while it began to end, or outlast the grace."""
        self._stop_accepting()
        await asyncio.sleep(0)  # what was accepted becomes a connection; asyncio loses it where its server has closed
        await super().shutdown(sockets)
        connections: Any = self.server_state.connections
        for one in tuple(connections):
            one.abort()
        await asyncio.sleep(0)  # they are told

    def pause_accepting(self) -> None:
        """Leave new connections to the system's queue."""
        self._stop_accepting()
        for server in self.servers:
            asyncio.get_running_loop().call_soon(server.close)  # after what was accepted, as in shutdown

    def _stop_accepting(self) -> None:
        loop = asyncio.get_running_loop()
        for one in (listening for server in self.servers for listening in server.sockets):
            with suppress(NotImplementedError):  # Windows' event loop does not accept when a socket is readable
                loop.remove_reader(one)

    def resume_accepting(self) -> None:
        """Accept what waits, unless the server ends."""
        if not self.should_exit:
            self._resuming = asyncio.get_running_loop().create_task(self._accept())

    async def _accept(self) -> None:
        self.servers = [
            await asyncio.get_running_loop().create_server(self._protocol, sock=one.dup(), backlog=ACCEPTED_AT_ONCE)
            for one in self._listening
        ]
        for one in self._listening:
            one.listen(BACKLOG)

    def _protocol(self) -> asyncio.Protocol:
        made: Any = self.config.http_protocol_class
        return made(config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

    def stop(self) -> None:
        """End as at a signal; may be called from any thread."""
        if self.last_call is not None:
            self.last_call.interrupted |= self.interrupted
            self.last_call.begin()
        notify("STOPPING=1")
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
        if self.on_stop is not None:
            self.on_stop()

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


def _log_one_line(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Log that the system's descriptors or memory are out in a line, and all else as the event loop does."""
    error = context.get("exception")
    if isinstance(error, OSError) and "accept" in str(context.get("message")):
        logging.getLogger("edgegen.server").warning("no connection can be accepted for a second: %s", error.strerror)
    else:
        loop.default_exception_handler(context)
