"""At a terminal: a progress bar while exporting, and nothing of it left behind."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgegen.bundle.bundle import Bundle
from tests.cli.conftest import COMMAND

if sys.platform == "win32":
    pytest.skip("Windows has no pseudo-terminals of this kind", allow_module_level=True)

import pty
import termios

pytestmark = pytest.mark.slow


def at_a_terminal(*arguments: str) -> tuple[int, bytes, bytes]:
    """Exit code, standard output, and what a terminal behind standard error was sent."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, 80))
    process = subprocess.Popen([*COMMAND, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=slave)
    os.close(slave)
    seen = b""
    try:
        while piece := os.read(master, 65536):
            seen += piece
    except OSError:  # Linux says so that the other end has closed
        pass
    finally:
        os.close(master)
    out, _ = process.communicate(timeout=300)
    return process.returncode, out, seen


def test_an_export_shows_a_bar_that_goes_away(checkpoint: Path, tmp_path: Path) -> None:
    code, out, seen = at_a_terminal("export", str(checkpoint), "-o", str(tmp_path / "out"))
    assert (code, out.decode()) == (0, f"{tmp_path / 'out'}\n")
    assert b"writing int8 weights" in seen
    assert b"0%" in seen
    lines = seen.decode().splitlines()
    begin = next(i for i, line in enumerate(lines) if "against the checkpoint, on 512 tokens of sample text:" in line)
    assert "weights, in " in lines[begin - 1]
    assert lines[begin + 1].split() == ["int8-kv-int8", "int8", "int8-kv-int4"]
    assert lines[begin + 2].startswith("mean KL, nats ")
    assert lines[-1].startswith("worst layer's relative error ")
    assert not any("%|" in line or "█" in line for line in lines[begin:])
    assert all(len(line) <= 80 for line in lines[begin:])


def test_a_quiet_export_shows_none(checkpoint: Path, tmp_path: Path) -> None:
    code, _, seen = at_a_terminal("export", str(checkpoint), "-q", "-o", str(tmp_path / "out"))
    assert (code, seen) == (0, b"")


def test_perplexity_shows_a_bar_and_the_time_left(int8_bundle: Bundle, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("Once upon a time. " * 300)
    code, out, seen = at_a_terminal("score", "-m", str(int8_bundle.path), "-f", str(tmp_path / "text"), "--json")
    assert code == 0
    assert out.startswith(b'{"perplexity": ')
    assert b"0%" in seen
    assert b" left" in seen
    assert "█" not in seen.decode().split("\r")[-1]


def test_a_benchmark_shows_a_bar_that_goes_away(int8_bundle: Bundle) -> None:
    options = ["--prefill", "4", "--context", "8", "--batch", "1", "--repeats", "1", "--threads", "1"]
    code, out, seen = at_a_terminal("bench", "-m", str(int8_bundle.path), *options, "--json")
    assert code == 0
    assert out.startswith(b'{"edgegen": ')
    assert b"measuring" in seen
    assert b" left" in seen
    assert "█" not in seen.decode().split("\r")[-1]
