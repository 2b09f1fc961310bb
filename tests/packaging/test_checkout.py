"""A checkout has the repository's bytes on every system: text files have hashes, in bundles and in tests."""

import shutil
import subprocess
from pathlib import Path

import pytest

from edgegen.bundle.bundle import Bundle
from tests.root import ROOT

pytestmark = pytest.mark.skipif(
    not (ROOT / ".git").exists() or shutil.which("git") is None, reason="a source distribution has no history"
)

EMBEDDED = "edgegen/bundle/embedded/stories"


def git(folder: Path, *words: str) -> str:
    return subprocess.run(["git", *words], cwd=folder, capture_output=True, text=True, check=True).stdout


def test_no_text_file_has_windows_line_ends() -> None:
    listed = (line.split(maxsplit=3) for line in git(ROOT, "ls-files", "--eol").splitlines())
    assert [name for index, _, _, name in listed if index in ("i/crlf", "i/mixed")] == []


def test_git_changes_no_line_end(tmp_path: Path) -> None:
    """As with Git for Windows, which sets core.autocrlf to true unless its installer is told not to."""
    clone = tmp_path / "clone"
    git(tmp_path, "clone", "-q", "--shared", "--no-checkout", "-c", "core.autocrlf=true", str(ROOT), str(clone))
    git(clone, "checkout", "-q", "HEAD", "--", ".gitattributes", EMBEDDED)
    Bundle.open(clone / EMBEDDED).verify()
