"""When a file was last changed, as Windows and other systems tell it."""

import os
import struct
from pathlib import Path

import pytest

from edgegen.system import change_time

CREATED, READ, WRITTEN = 0x01DB_0000_0000_0000, 0x01DB_0000_0000_0001, 0x01DB_0000_0000_0002


def test_windows_tells_the_time_of_change_beside_that_of_creation(tmp_path: Path) -> None:
    changed = 116_444_736_000_000_000 + 17_000_000_000_000_000 + 1  # 1970 and so many units of 100 ns
    info = struct.pack("<4qI4x", CREATED, READ, WRITTEN, changed, 0x20)
    assert change_time(tmp_path, lambda _: info) == 1_700_000_000_000_000_100


def test_a_file_system_that_keeps_no_such_time_has_none(tmp_path: Path) -> None:
    assert change_time(tmp_path, lambda _: struct.pack("<4qI4x", CREATED, READ, WRITTEN, 0, 0x20)) is None


def test_a_change_whose_time_was_set_back_is_seen_here_too(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("x")
    before, stat = change_time(path), path.stat()
    assert before is not None
    found = before
    while found == before:  # the clock of the file system has a grain
        path.write_text("y")
        os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        found = change_time(path)
        assert found is not None
    assert found > before


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        change_time(tmp_path / "none")
