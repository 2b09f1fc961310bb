"""open_regular(), read_regular() and read_regular_text(): read a file, and refuse what is no regular file.

A pipe without a writer would wait for ever when it is opened, and a device may never end.
"""

import errno
import os
import stat
from io import BufferedReader, TextIOWrapper
from pathlib import Path

_FLAGS = os.O_RDONLY | sum(getattr(os, name, 0) for name in ("O_NONBLOCK", "O_NOCTTY", "O_CLOEXEC", "O_BINARY"))


def open_regular(path: Path) -> BufferedReader:
    """The file at ``path``, opened for reading at once.

    Raises:
        OSError: it cannot be read, or is a folder, a pipe, a socket or a device.
    """
    descriptor = os.open(path, _FLAGS)
    try:
        mode = os.fstat(descriptor).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        if not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is a pipe or a device, not a file", str(path))
        return os.fdopen(descriptor, "rb")
    except BaseException:
        os.close(descriptor)
        raise


def read_regular(path: Path) -> bytes:
    """The contents of the file at ``path``. Raises as ``open_regular`` does."""
    with open_regular(path) as file:
        return file.read()


def read_regular_text(path: Path, most: int = -1) -> str:
    """The UTF-8 text in the file at ``path`` without a byte order mark, its first ``most`` characters.

    Raises:
        OSError: as ``open_regular``.
        UnicodeDecodeError: it is not UTF-8.
    """
    with TextIOWrapper(open_regular(path), encoding="utf-8-sig") as file:
        return file.read(most)
