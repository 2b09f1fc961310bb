"""``edgegen serve`` as a process of its own."""

import os
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

KEY = "a-secret-key"
HELLO: list[Any] = [{"role": "user", "content": "Hello"}]


@contextmanager
def serving(*arguments: str, **environment: str) -> Generator[tuple[subprocess.Popen[str], str]]:
    """A server process on a free port, and its address; its last words are to be read by the caller.

    It logs failures only, unless ``arguments`` say otherwise.
    """
    command = [sys.executable, "-m", "edgegen", "serve", "--port", "0", "--log-level", "warning", *arguments]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | environment)
    try:
        assert process.stderr
        line = process.stderr.readline()
        assert " at http://" in line, line
        yield process, line.partition(" at ")[2].split()[0]
    finally:
        process.kill()
        process.communicate()
