"""What ends a server, and whether another one may listen beside it."""

import errno
import signal
import socket
from types import SimpleNamespace

import pytest

from edgegen.server.options import ServerOptions
from edgegen.server.runner import ListenError, address_option, listen, server_of, stop_signals

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
