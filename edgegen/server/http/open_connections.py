"""OpenConnections: at most as many as the process has file descriptors for; others wait to be accepted."""

import logging
import sys
import time
from collections.abc import Callable
from typing import Protocol

_LOG = logging.getLogger("edgegen.server")

ACCEPTED_AT_ONCE = 8
"""Connections that are accepted before any of them is counted."""

_KEPT_FREE = 96
"""Descriptors for all else: models that are loaded, logs, pulls, and connections that are not counted yet."""

_LOG_SECONDS = 60.0
"""Between two lines about it."""


class Connection(Protocol):
    """A connection that may be ended."""

    def abort(self) -> None: ...


def most_connections() -> int | None:
    """Connections that the process may have open; None where no limit is known."""
    if sys.platform == "win32":
        return None
    import resource

    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else max(soft - _KEPT_FREE, soft // 4)


class OpenConnections:
    """Counts connections, and ends the one that has waited longest without a request when there are too many.

    Where all have requests, ``pause`` is called, and ``resume`` once there is room.
    """

    def __init__(
        self,
        most: int | None,
        pause: Callable[[], object] = lambda: None,
        resume: Callable[[], object] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._most = most
        self._pause = pause
        self._resume = resume
        self._clock = clock
        self._open = set[Connection]()
        self._waiting = dict[Connection, None]()  # without a request, the longest first
        self._paused = False
        self._logged_at: float | None = None

    def enter(self, connection: Connection) -> None:
        """A connection has been accepted, and waits for its request."""
        self._open.add(connection)
        self._waiting[connection] = None
        if self._most is None or len(self._open) <= self._most:
            return
        self._log()
        oldest = next(iter(self._waiting))
        if oldest is not connection:
            self.leave(oldest)
            oldest.abort()
        elif not self._paused:
            self._paused = True
            self._pause()

    def wait(self, connection: Connection) -> None:
        """It has no request any more."""
        if connection in self._open:
            self._waiting.setdefault(connection)

    def work(self, connection: Connection) -> None:
        """It has a request."""
        self._waiting.pop(connection, None)

    def leave(self, connection: Connection) -> None:
        """It has ended."""
        self._open.discard(connection)
        self._waiting.pop(connection, None)
        if self._paused and (self._most is None or len(self._open) < self._most):
            self._paused = False
            self._resume()

    def _log(self) -> None:
        now = self._clock()
        if self._logged_at is None or now - self._logged_at >= _LOG_SECONDS:
            self._logged_at = now
            _LOG.warning(
                "%d connections are open, as many as the limit of file descriptors allows: those without a request are "
                "closed, and others wait; `ulimit -n` raises it",
                self._most,
            )
