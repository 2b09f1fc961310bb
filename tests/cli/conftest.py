"""The command line as people meet it: a process, its exit code, what it prints where."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from edgegen.bundle.bundle import Bundle
from tests.forked_command import LITTLE, SEARCH, Forks
from tests.systems import lend

Done = subprocess.CompletedProcess[bytes]
Edgegen = Callable[..., Done]
COMMAND = [sys.executable, "-m", "edgegen"]
SLOW_COMMAND = [sys.executable, "-m", "tests.cli.slow_command"]


def feed(pipe: Path, text: str) -> None:
    """Write a text to a named pipe; returns once a command has read it, and so is past its start."""
    pipe.write_text(text, "utf-8")


@pytest.fixture
def model(int8_bundle: Bundle, edgegen_home: Path) -> str:
    """The name of a bundle in the store."""
    (edgegen_home / "bundles").mkdir(parents=True)
    lend(int8_bundle.path, edgegen_home / "bundles" / "tiny-int8")
    return "tiny-int8"


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    forks = Forks(os.environ | SEARCH, also=LITTLE)
    yield forks
    forks.close()


@pytest.fixture
def edgegen(forks: Forks, tmp_path: Path) -> Edgegen:
    """Runs the command in a process of its own, in an empty folder, its standard input empty unless given."""
    (tmp_path / "cwd").mkdir()

    def run(*arguments: str | bytes, stdin: bytes = b"", **environment: str) -> Done:
        return forks.run(arguments, stdin, tmp_path / "cwd", os.environ | SEARCH | environment)

    return run
