"""PullProcess: ``edgegen pull`` in a process of its own, so that no export's memory or library enters the server."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from threading import Timer
from typing import Protocol

from edgegen.errors import EdgegenError
from edgegen.server.models.pull_order import PullOrder
from edgegen.system import child_environment, creation_flags, interrupt, is_frozen

_PATIENCE_S = 10.0
"""Seconds after which a process that was told to end is killed."""


class PullRunner(Protocol):
    """A pull that runs outside of the server. Its methods may be called by any thread."""

    def lines(self) -> Iterator[str]:
        """Yield the lines that the process writes, as it writes them."""
        ...

    def wait(self) -> int:
        """Its exit code, once it has ended."""
        ...

    def end(self) -> None:
        """Have it end soon; what it has downloaded and worked out stays for the next pull of the model."""
        ...


class PullProcess:
    """The process of one order."""

    def __init__(self, order: PullOrder) -> None:
        """Start it.

        Raises:
            EdgegenError: this is a frozen app, which has no Python of its own to start.
            OSError: the system starts no process.
        """
        if is_frozen():
            raise EdgegenError("a frozen app pulls no models: run `edgegen pull` of an installation with Python.")
        # In an empty folder no name of a client is a file's.
        self._folder = tempfile.TemporaryDirectory(prefix="edgegen-pull-", ignore_cleanup_errors=True)
        file = (f"--gguf-file={order.gguf}",) if order.gguf else ()
        options = ("--progress", "json", f"--{order.scheme}", *file, "--", order.source)
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "edgegen", "pull", *options],
            cwd=self._folder.name,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            env=child_environment(exports=True),
            creationflags=creation_flags(),
            start_new_session=True,  # Ctrl-C is for the server, which ends it; Windows has no such thing
        )
        self._patience: Timer | None = None

    def lines(self) -> Iterator[str]:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            yield from (line.rstrip("\n") for line in lines)

    def wait(self) -> int:
        code = self._process.wait()
        if self._patience is not None:
            self._patience.cancel()
        self._folder.cleanup()
        return code

    def end(self) -> None:
        if self._patience is None and self._process.poll() is None:
            self._patience = Timer(_PATIENCE_S, self._process.kill)
            self._patience.daemon = True
            self._patience.start()
            interrupt(self._process)
