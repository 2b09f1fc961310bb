"""The surroundings of a command: its environment, working directory and streams. Containers and services have few."""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cli.conftest import COMMAND, SEARCH
from tests.systems import needs_posix

pytestmark = [pytest.mark.slow, needs_posix("shells of this kind")]

GENERATE = ("generate", "Größe 😀", "--echo", "--seed", "1", "-n", "2")


def run(
    script: str = 'exec "$@"', env: Mapping[str, str] | None = None, cwd: Path | None = None, drop: str = ""
) -> subprocess.CompletedProcess[bytes]:
    """``generate`` under a shell's script, in which ``"$@"`` is the command."""
    environment = {name: value for name, value in os.environ.items() if name != drop} | SEARCH | dict(env or {})
    command = ["sh", "-c", script, "sh", *COMMAND, *GENERATE]
    return subprocess.run(command, capture_output=True, env=environment, cwd=cwd, check=False, timeout=300)


@pytest.mark.parametrize(
    ("drop", "env"),
    [
        ("HOME", {}),
        ("", {"HOME": "/nonexistent", "TMPDIR": "/nonexistent"}),
        ("", {"PYTHONIOENCODING": "ascii"}),
        ("", {"PYTHONIOENCODING": "cp1252", "TERM": "dumb", "COLUMNS": "1"}),
        ("", {"PYTHONWARNINGS": "error"}),
        ("", {"PYTHONOPTIMIZE": "2"}),
    ],
)
def test_an_unusual_environment_changes_nothing(drop: str, env: dict[str, str]) -> None:
    done = run(env=env, drop=drop)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode().startswith("Größe 😀")


@pytest.mark.parametrize("script", ['exec "$@" <&-', 'exec "$@" 2>&-', 'cd gone && rmdir ../gone && exec "$@"'])
def test_a_stream_or_a_folder_that_is_not_there_is_not_needed(script: str, tmp_path: Path) -> None:
    (tmp_path / "gone").mkdir()
    done = run(script, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.decode().startswith("Größe 😀")


@pytest.mark.skipif(sys.platform != "linux", reason="Linux has /dev/full")
def test_an_answer_that_cannot_be_written_is_an_error() -> None:
    done = run('exec "$@" >/dev/full')
    assert (done.returncode, done.stderr) == (1, b"edgegen: error: No space left on device\n")


def test_a_path_may_have_any_characters(tmp_path: Path) -> None:
    home = tmp_path / "模型 ñ#%3f" / "it's"
    home.mkdir(parents=True)
    done = run('"$@" && exec "$1" "$2" "$3" info stories', env={"EDGEGEN_HOME": str(home)}, cwd=home)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"stories" in done.stdout
