"""windows_files(): the rule of Windows that no file is removed or renamed while it is open, kept on Linux too."""

import errno
import os
import re
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

_SHARING_VIOLATION = 32
_MAPPED = re.compile(r"^\S+ \S+ \S+ \S+ [1-9]\d*\s+(/.*)$", re.MULTILINE)


class InUseError(PermissionError):
    """As Windows raises it."""

    winerror = _SHARING_VIOLATION


@contextmanager
def windows_files() -> Generator[None]:
    """Keep files that this process has open or mapped, and folders that hold them, from being removed or renamed.

    On Windows itself there is nothing to do.
    """
    if sys.platform == "win32":
        yield
        return
    with (
        patch("os.unlink", _refusing(os.unlink, ["dir_fd"])),
        patch("os.remove", _refusing(os.remove, ["dir_fd"])),
        patch("os.rename", _refusing(os.rename, ["src_dir_fd", "dst_dir_fd"])),
        patch("os.replace", _refusing(os.replace, ["src_dir_fd", "dst_dir_fd"])),
    ):
        yield


def _refusing(act: Callable[..., None], folders: list[str]) -> Callable[..., None]:
    """``act`` on the paths that come first, each relative to the descriptor of a folder of that name."""

    def refusing(*args: Any, **kwargs: Any) -> None:
        used = _in_use()
        for path, folder in zip(args, folders, strict=False):
            at = kwargs.get(folder)
            full = Path(path) if at is None else Path(f"/proc/self/fd/{at}", path)
            full = full.parent.resolve() / full.name
            if any(file.is_relative_to(full) for file in used):
                raise InUseError(errno.EACCES, "The process cannot access the file", str(full))
        act(*args, **kwargs)

    return refusing


def _in_use() -> set[Path]:
    """The files that this process has open or mapped."""
    used = {Path(path) for path in _MAPPED.findall(Path("/proc/self/maps").read_text())}
    for descriptor in [*Path("/proc/self/fd").iterdir()]:
        with suppress(FileNotFoundError):  # the one that listed them
            used.add(descriptor.readlink())
    return {path for path in used if path.is_file()}
