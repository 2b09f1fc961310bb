"""Messages between systemd and a service: a socket that is handed over, and when the service is ready or stops."""

import os
import socket
from collections.abc import MutableMapping
from contextlib import suppress

_FIRST = 3
"""The file descriptor of the first socket that is handed over (sd_listen_fds(3))."""


def handed_over(environment: MutableMapping[str, str] | None = None, *, first: int = _FIRST) -> list[socket.socket]:
    """The sockets that systemd listens on for this process, which are not handed on to its children."""
    environment = os.environ if environment is None else environment
    process, count = environment.pop("LISTEN_PID", ""), environment.pop("LISTEN_FDS", "")
    environment.pop("LISTEN_FDNAMES", None)
    if process != str(os.getpid()) or not count.isdecimal():
        return []
    found = [socket.socket(fileno=number) for number in range(first, first + int(count))]
    for one in found:
        one.set_inheritable(False)
    return found


def notify(state: str) -> None:
    """Tell systemd a state such as ``READY=1`` (sd_notify(3)), where it started this process and asked for that."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address or not hasattr(socket, "AF_UNIX"):
        return
    # A name in the kernel's own list is written with an at sign.
    name = f"\0{address[1:]}" if address.startswith("@") else address
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as to:
        to.connect(name)
        to.sendall(state.encode())
