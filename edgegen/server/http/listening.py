"""Where the server listens: an address, a UNIX socket, or a socket that systemd hands over."""

import os
import socket
import stat
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from edgegen.errors import EdgegenError
from edgegen.server.http.options import ServerOptions
from edgegen.system.systemd import handed_over

BACKLOG = 256
"""Connections that wait to be accepted."""


class ListenError(EdgegenError):
    """The address cannot be listened on."""


@dataclass(frozen=True, slots=True)
class Listening:
    """
    Attributes:
        options: those of the server, with the address of a socket that was handed over.
        where: the address as a text, such as http://127.0.0.1:8000.
    """

    socket: socket.socket
    options: ServerOptions
    where: str


@contextmanager
def listening(options: ServerOptions) -> Generator[Listening]:
    """Listen until the end of the block: on the socket of systemd, if it hands one over, or where ``options`` say.

    Raises:
        ListenError: the address is taken, or not this machine's; systemd hands over several sockets.
        UsageError: other machines reach systemd's socket, and no key is asked for.
    """
    with ExitStack() as stack:
        sockets = [stack.enter_context(one) for one in handed_over()]
        if len(sockets) > 1:
            raise ListenError(f"systemd hands over {len(sockets)} sockets, and the server listens on one.")
        if sockets:
            options = _as_handed_over(options, sockets[0])
            sockets[0].setblocking(False)
            found = sockets[0]
        elif path := options.socket_path:
            found = stack.enter_context(_unix_socket(path))
        else:
            found = stack.enter_context(listen(options))
        yield Listening(found, options, _where(found))


def listen(options: ServerOptions) -> socket.socket:
    """A socket that listens at the host and port of ``options``; port 0 is any free one.

    Raises:
        ListenError: the address is taken, or not this machine's.
    """
    where = f"{options.host}:{options.port}"
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            options.host, options.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ListenError(f"cannot listen on {where}: {error.strerror or error}.") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, address_option(), 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ListenError(f"cannot listen on {where}: {error.strerror}: give another --host or --port.") from None
    listener.setblocking(False)
    return listener


def address_option(names: Any = socket) -> int:
    """The option by which a restarted server may listen again at once, and no other process beside it.

    On Windows SO_REUSEADDR would let another process take the port over while it is listened on.
    """
    return getattr(names, "SO_EXCLUSIVEADDRUSE", None) or names.SO_REUSEADDR


@contextmanager
def _unix_socket(path: str) -> Generator[socket.socket]:
    """A UNIX socket that listens at ``path``, where at most a socket without a listener was before.

    Who may connect is whom the file lets write: the umask says so.
    """
    if not hasattr(socket, "AF_UNIX"):
        raise ListenError(f"cannot listen on {path}: this system has no UNIX sockets; give an address as --host.")
    _remove_stale(path)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        try:
            listener.bind(path)
            listener.listen(BACKLOG)
        except OSError as error:
            raise ListenError(f"cannot listen on {path}: {error.strerror or error}: give another --host.") from None
        listener.setblocking(False)
        ours = Path(path).stat().st_ino
        try:
            yield listener
        finally:
            with suppress(OSError):
                if Path(path).stat().st_ino == ours:
                    Path(path).unlink()


def _remove_stale(path: str) -> None:
    """Remove the socket of a server that was killed.

    Raises:
        ListenError: something else is there, or a server that listens.
    """
    try:
        mode = Path(path).lstat().st_mode
    except OSError:
        return  # nothing, or bind says what is wrong
    if not stat.S_ISSOCK(mode):
        raise ListenError(f"cannot listen on {path}: a file is there that is not a socket; give another --host.")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(path)
        except ConnectionRefusedError:
            with suppress(FileNotFoundError):
                Path(path).unlink()
            return
        except OSError as error:
            raise ListenError(f"cannot listen on {path}: {error.strerror or error}.") from None
    raise ListenError(f"cannot listen on {path}: another server listens there; give another --host.")


def _as_handed_over(options: ServerOptions, found: socket.socket) -> ServerOptions:
    """``options`` with the address of ``found``, which has to be safe with them."""
    address = found.getsockname()
    if isinstance(address, str | bytes):
        return replace(options, host=f"unix:{os.fsdecode(address)}")
    return replace(options, host=address[0], port=address[1])


def _where(found: socket.socket) -> str:
    address = found.getsockname()
    if isinstance(address, str | bytes):
        return f"unix:{os.fsdecode(address)}"
    host, port = address[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
