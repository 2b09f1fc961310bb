"""Parts that an emulated system cannot test: ports, console events, and files that other programs hold for a moment.

Only where ``EDGEGEN_REAL_SYSTEM`` is set, as on the runners of ci.yml: Wine has other ports and no virus scanner.
"""

import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from edgegen.bundle.bundle import Bundle
from tests.root import ROOT
from tests.waiting import PATIENCE_S

pytestmark = pytest.mark.skipif(
    not os.environ.get("EDGEGEN_REAL_SYSTEM"), reason="EDGEGEN_REAL_SYSTEM is not set: these take a minute"
)

EXPORTS = 10


@contextmanager
def server(port: int) -> Generator[subprocess.Popen[str]]:
    """A server process that a console event reaches alone."""
    group = subprocess.CREATE_NEW_PROCESS_GROUP if sys.platform == "win32" else 0
    command = [sys.executable, "-m", "edgegen", "serve", "--port", str(port)]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, creationflags=group)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stderr
    return process.stderr.readline()


def test_a_port_has_one_server() -> None:
    """Windows lets a second program bind a port that is not exclusive, and clients reach either."""
    port = free_port()
    with server(port) as first:
        assert f" at http://127.0.0.1:{port}" in first_line(first)
        with server(port) as second:
            assert second.wait(PATIENCE_S) == 1
            assert str(port) in first_line(second)
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=PATIENCE_S) as answer:
            assert answer.status == 200


def test_a_console_event_ends_a_server_as_sigterm_does() -> None:
    with server(free_port()) as process:
        assert " at http://" in first_line(process)
        process.send_signal(signal.CTRL_BREAK_EVENT if sys.platform == "win32" else signal.SIGTERM)
        _, rest = process.communicate(timeout=PATIENCE_S)
        assert process.returncode == 0, rest
        assert "Traceback" not in rest


def test_exports_over_each_other_leave_nothing_else(tmp_path: Path) -> None:
    """A virus scanner holds files that were just written, and folders that were just emptied."""
    output = tmp_path / "bundle"
    export = [sys.executable, "-m", "edgegen", "export", str(ROOT / "models" / "stories"), "--force", "-o", str(output)]
    for _ in range(EXPORTS):
        done = subprocess.run([*export, "--fp32", "--fast"], capture_output=True, text=True, timeout=PATIENCE_S)
        assert done.returncode == 0, done.stderr
        assert [path.name for path in tmp_path.iterdir()] == ["bundle"]
    Bundle.open(output).verify()
