"""LastCall: a process that was told to end does so in time, whatever still runs in it."""

import logging
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from threading import Lock, Thread
from typing import Self

from edgegen.server.http.work import unfinished_work

CLOSING_SECONDS = 5.0
"""After the grace of running requests: for models to be closed and for the last lines of the log."""

_LOG = logging.getLogger("edgegen.server")


class LastCall:
    """Leaves the process ``seconds`` after :meth:`begin`, unless the ``with`` block has ended before.

    Work in a thread cannot be interrupted, and the interpreter does not survive threads that are in native code while
    it goes away. So a process in which work is left over is left at once, without waiting for it.
    """

    def __init__(
        self,
        seconds: float,
        leave: Callable[[int], object] = os._exit,
        unfinished: Callable[[], dict[str, int]] = unfinished_work,
    ) -> None:
        self._seconds = seconds
        self._leave = leave
        self._unfinished = unfinished
        self._begun, self._done = Lock(), Lock()
        self.interrupted = False
        """Whether Ctrl-C has ended it, which the exit code tells."""

    def begin(self) -> None:
        """The time begins now, at the first call; may be called in a signal handler."""
        with suppress(RuntimeError):  # it has begun
            self._begun.release()

    def __enter__(self) -> Self:
        self._begun.acquire()
        self._done.acquire()
        Thread(target=self._watch, name="edgegen-last-call", daemon=True).start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._done.release()
        self.begin()
        self.interrupted |= kind is KeyboardInterrupt
        if (kind is None or kind is KeyboardInterrupt) and self._unfinished():
            self._end()

    def _watch(self) -> None:
        self._begun.acquire()
        if not self._done.acquire(timeout=self._seconds):
            left = ", ".join(f"{count} {kind}" for kind, count in self._unfinished().items()) or "none"
            _LOG.error("the server did not end in time and is left; work that has not ended: %s", left)
            self._end()

    def _end(self) -> None:
        for file in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):
                file.flush()
        self._leave(130 if self.interrupted else 0)
