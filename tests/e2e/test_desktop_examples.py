"""examples/desktop: the service in asyncio answers, and the window in tkinter loads, answers, stops and unloads."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.root import ROOT

EXAMPLES = ROOT / "examples" / "desktop"
WINDOW = ROOT / "tests" / "e2e" / "tkinter_window.py"
PYTHONPATH = os.pathsep.join([str(ROOT), str(ROOT / "export")])


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """Where the service listens."""
    command = [sys.executable, str(EXAMPLES / "asyncio_service.py")]
    environment = os.environ | {"PYTHONPATH": PYTHONPATH}
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as service:
        assert service.stdout is not None
        yield int(service.stdout.readline())
        service.terminate()


class Connection:
    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self._lines = connected.makefile("rb")

    def send(self, line: bytes) -> None:
        self.socket.sendall(line + b"\n")

    def read(self) -> dict[str, Any]:
        return json.loads(self._lines.readline())

    def answer(self, **asked: object) -> tuple[str, str]:
        """The text, and the reason of its end."""
        self.send(json.dumps(asked).encode())
        text = ""
        while "text" in (read := self.read()):
            text += read["text"]
        return text, read["finish_reason"]


@contextmanager
def connect(port: int) -> Generator[Connection]:
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connected:
        yield Connection(connected)


def test_the_service_streams_answers_one_after_the_other(port: int) -> None:
    with connect(port) as client:
        for prompt in ("Once upon a time", "The dragon"):
            text, reason = client.answer(prompt=prompt, max_new_tokens=8)
            assert text
            assert reason == "length"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b"{}", "expected"),
        (b"[]", "expected"),
        (b"\xff", "expected"),
        (b'{"prompt": 3}', "prompt"),
        (b'{"prompt": "a", "max_new_tokens": "many"}', "expected"),
        (b'{"prompt": "a", "max_new_tokens": -1}', "max_new_tokens"),
    ],
)
def test_the_service_says_what_is_wrong_and_goes_on(port: int, line: bytes, said: str) -> None:
    with connect(port) as client:
        client.send(line)
        assert said in client.read()["error"]
        assert client.answer(prompt="Once", max_new_tokens=2)[1] == "length"


def test_a_connection_that_closes_harms_no_other(port: int) -> None:
    with connect(port) as stays:
        with connect(port) as leaves:
            leaves.send(b'{"prompt": "Once", "max_new_tokens": 400}')
            assert leaves.read()["text"]
        assert stays.answer(prompt="Once", max_new_tokens=4)[1] == "length"


@pytest.fixture
def display() -> Iterator[str]:
    """A virtual display."""
    if shutil.which("Xvfb") is None:
        pytest.skip("a display that nobody sees: Xvfb is not installed")
    read, write = os.pipe()
    with subprocess.Popen(
        ["Xvfb", "-displayfd", str(write), "-screen", "0", "1024x768x24"], pass_fds=[write]
    ) as server:
        os.close(write)
        with os.fdopen(read) as told:
            number = told.readline().strip()
        yield f":{number}"
        server.terminate()


def test_the_window_loads_answers_stops_and_unloads(display: str, tmp_path: Path) -> None:
    pytest.importorskip("tkinter", exc_type=ImportError)
    done = subprocess.run(
        [sys.executable, str(WINDOW), str(EXAMPLES / "tkinter_chat.py")],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": PYTHONPATH, "DISPLAY": display},
        timeout=120,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
