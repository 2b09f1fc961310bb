"""Verification is remembered for files that have not changed since, as each system tells it."""

import os
import time
from pathlib import Path

import pytest

from edgegen.bundle.manifest import FileEntry
from edgegen.bundle.verified_files import VerifiedFiles
from tests.windows_files import windows_files

HOUR_NS = 3600 * 10**9
SHA256 = "2d711642b726b04401627ca9fbac32f5c8530fb1903cc4db02258717921a4881"  # of "x"


class Windows:
    """A system whose ``st_ctime`` is when a file was made, and that tells by itself when one was changed."""

    def __init__(self) -> None:
        self.now: int | None = time.time_ns() - HOUR_NS

    def changed(self, path: Path) -> int | None:
        assert path.exists()
        return self.now


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "bundle" / "file"
    path.parent.mkdir()
    path.write_text("x")
    os.utime(path, ns=(0, time.time_ns() - HOUR_NS))
    return path


def check(file: Path, system: Windows) -> list[str]:
    files = {file.name: FileEntry(1, SHA256)}
    return VerifiedFiles(file.parent, file.parent, files, changed=system.changed).problems_once()


def change(file: Path) -> None:
    """Change a file unseen by all that ``stat`` reports on Windows: size, times and place stay."""
    stat = file.stat()
    file.write_text("y")
    os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def test_a_change_with_the_old_size_and_time_is_found(file: Path) -> None:
    system = Windows()
    assert check(file, system) == []
    change(file)
    assert check(file, system) == []  # remembered
    assert system.now is not None
    system.now += 1
    assert check(file, system) == ["file: contents differ from the manifest's hash"]


def test_where_changes_are_not_told_nothing_is_remembered(file: Path) -> None:
    system = Windows()
    system.now = None
    assert check(file, system) == []
    change(file)
    assert check(file, system) == ["file: contents differ from the manifest's hash"]


def test_what_is_remembered_is_no_half_file_where_another_process_reads_it(file: Path, edgegen_home: Path) -> None:
    system = Windows()
    assert check(file, system) == []
    (memory,) = (edgegen_home / "verified").iterdir()
    before = memory.read_text()
    assert system.now is not None
    system.now += 1
    with windows_files(), memory.open("rb"):
        assert check(file, system) == []
    assert [*memory.parent.iterdir()] == [memory]
    assert memory.read_text() == before
