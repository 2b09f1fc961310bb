"""The record of a checkout's commit, which `edgegen --version` shows."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

import commit
from edgegen.system.build_info import BuildInfo, with_commit

pytestmark = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


def _git(folder: Path, *words: str) -> str:
    name = ["-c", "user.name=A", "-c", "user.email=a@example.com", "-c", "commit.gpgsign=false"]
    return subprocess.run(["git", *name, *words], cwd=folder, capture_output=True, text=True, check=True).stdout.strip()


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A repository of one commit."""
    folder = tmp_path / "checkout"
    folder.mkdir()
    (folder / "a.py").write_text("a = 1\n")
    _git(folder, "init", "--initial-branch=main")
    _git(folder, "add", "a.py")
    _git(folder, "commit", "--message", "a: begin")
    return folder


def test_commit_and_changes_are_recorded(checkout: Path) -> None:
    head = _git(checkout, "rev-parse", "HEAD")
    assert json.loads(commit.record(checkout) or "") == {"commit": head, "clean": True}
    (checkout / "b.py").touch()  # a file of no commit would be packed too
    assert json.loads(commit.record(checkout) or "") == {"commit": head, "clean": False}
    time = commit.time_of_commit(checkout)
    assert time == int(_git(checkout, "log", "-1", "--format=%ct"))


def test_sources_inside_of_another_repository_have_no_commit(checkout: Path) -> None:
    unpacked = checkout / "edgegen-0.1.0"
    unpacked.mkdir()
    assert commit.record(unpacked) is None
    assert commit.time_of_commit(unpacked) is None


def test_a_repository_without_a_commit(tmp_path: Path) -> None:
    _git(tmp_path, "init")
    assert commit.record(tmp_path) is None


def test_what_is_recorded_is_read(checkout: Path, tmp_path: Path) -> None:
    file = tmp_path / "build_info.json"
    file.write_text(commit.record(checkout) or "")
    head = _git(checkout, "rev-parse", "HEAD")
    assert BuildInfo.read(file) == BuildInfo(head, clean=True)
    assert with_commit("0.1.0", file) == f"0.1.0 (commit {head[:12]})"
    (checkout / "a.py").write_text("a = 2\n")
    file.write_text(commit.record(checkout) or "")
    assert with_commit("0.1.0", file) == f"0.1.0 (commit {head[:12]}, modified)"


@pytest.mark.parametrize("text", [None, "", "[]", '{"commit": "ab"}', '{"commit": 1, "clean": true}'])
def test_without_a_record_there_is_the_version_alone(text: str | None, tmp_path: Path) -> None:
    file = tmp_path / "build_info.json"
    if text is not None:
        file.write_text(text)
    assert with_commit("0.1.0", file) == "0.1.0"
