"""Ends of a server, and whether another one may listen beside it."""

import asyncio
import errno
import selectors
import signal
import socket
import threading
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from edgegen.server.http.listening import ListenError, address_option, listen
from edgegen.server.http.options import ServerOptions
from edgegen.server.runner import Server, server_of, stop_signals
from tests.waiting import PATIENCE_S

BREAK = getattr(signal, "SIGBREAK", None) or signal.SIGUSR1
"""Stands for Windows' SIGBREAK where there is none."""

WINDOWS = SimpleNamespace(SIGINT=signal.SIGINT, SIGTERM=signal.SIGTERM, SIGBREAK=BREAK)


async def app(scope: object, receive: object, send: object) -> None: ...


@pytest.mark.parametrize(
    ("number", "interrupted"), [(signal.SIGINT, True), (signal.SIGTERM, False), (BREAK, False)], ids=str
)
def test_each_signal_ends_the_server_and_only_ctrl_c_is_an_interruption(
    number: signal.Signals, interrupted: bool
) -> None:
    server = server_of(app, ServerOptions(port=0))
    server.stopped_by = stop_signals(WINDOWS)
    before = signal.getsignal(number)
    with server.capture_signals():
        signal.raise_signal(number)
    assert (server.should_exit, server.force_exit, server.interrupted) == (True, False, interrupted)
    assert signal.getsignal(number) is before


def test_the_signals_are_those_that_the_system_has() -> None:
    assert {signal.SIGINT, signal.SIGTERM} <= {*stop_signals()}
    assert stop_signals(WINDOWS) == (signal.SIGINT, signal.SIGTERM, BREAK)


def test_a_port_is_exclusive_where_it_could_be_shared() -> None:
    assert address_option(SimpleNamespace(SO_REUSEADDR=4, SO_EXCLUSIVEADDRUSE=-5)) == -5
    assert address_option(SimpleNamespace(SO_REUSEADDR=2)) == 2


def test_a_port_that_is_listened_on_is_refused() -> None:
    with listen(ServerOptions(port=0)) as first:
        port = first.getsockname()[1]
        with pytest.raises(ListenError, match=f"cannot listen on 127.0.0.1:{port}: .*give another --host or --port"):
            listen(ServerOptions(port=port))
        with socket.socket() as other:  # of a program that would take it over
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with pytest.raises(OSError, match=r"\d") as raised:
                other.bind(("127.0.0.1", port))
            assert raised.value.errno in (errno.EADDRINUSE, errno.EACCES)
    listen(ServerOptions(port=port)).close()  # at once, as a restart does


class HastyLoop(asyncio.SelectorEventLoop):
    """Waits for nothing: the time that it would wait is over at once."""

    waits = 0

    def __init__(self) -> None:
        super().__init__(HastySelector(self))
        self._passed = 0.0

    def time(self) -> float:
        return self._passed

    def skip(self, seconds: float) -> None:
        self.waits += seconds > 0
        self._passed += seconds


class HastySelector(selectors.SelectSelector):
    def __init__(self, loop: HastyLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> Any:
        assert timeout is not None  # or nothing would ever come
        self._loop.skip(timeout)
        return super().select(0)


def test_an_idle_server_wakes_up_once_a_second_and_for_its_end() -> None:
    server = server_of(app, ServerOptions(port=0))
    server.config.load()
    loop = HastyLoop()

    async def idle() -> float:
        loop.call_later(60.25, server.stop)
        await server.main_loop()
        return loop.time()

    try:
        assert loop.run_until_complete(idle()) == pytest.approx(60.25)
    finally:
        loop.close()
    assert loop.waits <= 62


def get_signal(server: Server) -> None:
    server.handle_exit(signal.SIGTERM, None)


@pytest.mark.parametrize("end", [Server.stop, get_signal])
def test_a_server_that_waits_is_woken_by_another_thread_or_a_signal(end: Callable[[Server], None]) -> None:
    server = server_of(app, ServerOptions(port=0))
    server.config.load()
    waits = threading.Event()

    async def serve() -> None:
        asyncio.get_running_loop().call_soon(waits.set)
        await server.main_loop()

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    assert waits.wait(PATIENCE_S)
    end(server)
    thread.join(PATIENCE_S)
    assert not thread.is_alive()
    server.stop()  # whose loop is closed
