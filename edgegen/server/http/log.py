"""log_to: the server's log, as lines of text or JSON that hold up no request."""

import json
import logging
import os
import queue
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from threading import Thread
from typing import Any, Literal

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]

REQUEST_FIELDS = "request_fields"
"""The attribute of a log record that is about a request: its fields by name, which JSON has in place of a message."""

_LOGGERS = ("edgegen", "uvicorn", "asyncio")
_MOST_WAITING = 1000
"""Lines that wait to be written."""

_LAST_LINES_SECONDS = 1.0
"""For the lines that wait when the server ends."""


@contextmanager
def log_to(descriptor: int, level: LogLevel, form: LogFormat) -> Generator[None]:
    """Write what is logged meanwhile to a file descriptor, in ASCII; ``level`` is that of edgegen's own loggers."""
    lines = LineWriter(descriptor)
    lines.setFormatter(JsonLines() if form == "json" else TextLines())
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    before = [(one, one.level, one.propagate) for one in loggers]
    loggers[0].setLevel(level.upper())
    for one in loggers:
        one.addHandler(lines)
        one.propagate = False
    try:
        yield
    finally:
        for one, its_level, propagates in before:
            one.removeHandler(lines)
            one.setLevel(its_level)
            one.propagate = propagates
        lines.close()


class LineWriter(logging.Handler):
    """Writes in a thread of its own: a paused terminal, or a pipe without a reader, would stop the event loop.

    Lines beyond those that may wait are dropped.
    """

    def __init__(self, descriptor: int) -> None:
        super().__init__()
        self._descriptor = descriptor
        self._lines = queue.Queue[str | None](_MOST_WAITING)
        self._thread = Thread(target=self._write, name="edgegen-log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        with suppress(queue.Full):
            self._lines.put_nowait(self.format(record))

    def close(self) -> None:
        with suppress(queue.Full):
            self._lines.put(None, timeout=_LAST_LINES_SECONDS)
            self._thread.join(_LAST_LINES_SECONDS)
        super().close()

    def _write(self) -> None:
        while (line := self._lines.get()) is not None:
            data = f"{line}\n".encode("ascii", "backslashreplace")
            with suppress(OSError):  # there is no reader
                while data:
                    data = data[os.write(self._descriptor, data) :]


class TextLines(logging.Formatter):
    """Time in UTC, level and message."""

    converter = time.gmtime
    default_time_format = "%Y-%m-%dT%H:%M:%S"
    default_msec_format = "%s.%03dZ"

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")


class JsonLines(TextLines):
    """An object a line."""

    def format(self, record: logging.LogRecord) -> str:
        told: dict[str, Any] = getattr(record, REQUEST_FIELDS, None) or {"message": record.getMessage()}
        fields = {"time": self.formatTime(record), "level": record.levelname.lower(), **told}
        if record.exc_info:
            fields["exception"] = self.formatException(record.exc_info)
        return json.dumps(fields)
