"""Differences between systems: marks of tests that need what some lack, and links where they are allowed."""

import shutil
import sys
from pathlib import Path

import pytest

WINDOWS = sys.platform == "win32"


def needs_posix(what: str) -> pytest.MarkDecorator:
    """A mark: the test needs ``what``, which every system has but Windows."""
    return pytest.mark.skipif(WINDOWS, reason=f"Windows has no {what}")


needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells of a process in /proc")


def link(path: Path, to: Path) -> None:
    """Make ``path`` a symbolic link to ``to``. Skips the test where the system forbids it: Windows asks for a right."""
    try:
        path.symlink_to(to, target_is_directory=to.is_dir())
    except OSError as error:
        if not WINDOWS:
            raise
        pytest.skip(f"this user may make no symbolic links: {error}")
    if not path.is_symlink():
        pytest.skip("the system makes no symbolic links, and says that it does: so does Wine")


def lend(path: Path, to: Path) -> None:
    """Have the file or folder ``path`` at ``to`` as well, by a link or, on Windows, by a copy."""
    if not WINDOWS:
        to.symlink_to(path)
    elif path.is_dir():
        shutil.copytree(path, to)
    else:
        shutil.copyfile(path, to)
