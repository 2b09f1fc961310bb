"""ProgressLines: progress on standard error for programs, one JSON object a line."""

import json
import os
import threading
import time
from collections.abc import Mapping
from typing import Any, Self

import click

from edgegen.cli.printable import printable_lines

_SECONDS = 0.25
"""Between two lines of one stage, but for its last."""


class ProgressLines:
    """Each line has the ``stage``; with ``completed`` and ``total`` where those are known.

    They are bytes of the ``file`` of that ``sha256`` in a download, and parts of the stage otherwise. Notes, warnings
    and errors stay lines of text.
    """

    shown = False

    def __init__(self, quiet: bool) -> None:
        self._quiet = quiet
        self._lock = threading.Lock()
        self._stage = ""
        self._told_at = 0.0
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None: ...

    def expect(self, seconds: Mapping[str, float]) -> None: ...

    def stage(self, text: str) -> None:
        with self._lock:
            self._stage, self._told_at = text, 0.0
            self._write({})

    def advance(self, done: int, total: int) -> None:
        self._tell(done, total)

    def downloaded(self, file: str, sha256: str, done: int, total: int) -> None:
        self._tell(done, total, file=file, sha256=sha256)

    def note(self, text: str) -> None:
        self._say(text)

    def warn(self, text: str) -> None:
        self._say(f"warning: {text}")

    def _say(self, text: str) -> None:
        if not self._quiet:
            with self._lock:
                click.echo(f"edgegen: {printable_lines(text)}", err=True)

    def _tell(self, done: int, total: int, **more: str) -> None:
        with self._lock:
            now = time.monotonic()
            if done >= total or now >= self._told_at + _SECONDS:
                self._told_at = now
                self._write({**more, "completed": done, "total": total})

    def _write(self, facts: dict[str, Any]) -> None:
        click.echo(json.dumps({"stage": self._stage, **facts}), err=True)
