"""MappedFile: one read-only memory map of a file, handed out as NumPy views and given back page by page."""

import mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgegen.system import open_regular

# Windows has no madvise; there the pages stay until the operating system wants them.
_DONTNEED: int | None = getattr(mmap, "MADV_DONTNEED", None)


def byte_span(array: NDArray[Any]) -> int:
    """Bytes from the first to the last element of ``array`` in memory (strides are not negative here)."""
    if array.size == 0:
        return 0
    return array.itemsize + sum((n - 1) * stride for n, stride in zip(array.shape, array.strides, strict=True))


class MappedFile:
    """A whole file in memory, mapped once; views keep the map alive.

    Raises ``OSError`` when the file cannot be opened and ``ValueError`` when it is empty.
    """

    __slots__ = ("_bytes", "_map", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        with open_regular(path) as file:
            self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        self._bytes = np.frombuffer(self._map, np.uint8)  # [file size]

    @property
    def size(self) -> int:
        """Bytes in the file."""
        return self._bytes.size

    def view(self, offset: int, nbytes: int, dtype: np.dtype[Any], shape: tuple[int, ...]) -> NDArray[Any]:
        """``nbytes`` from ``offset`` as a read-only array of ``dtype`` and ``shape``; nothing is read yet."""
        return self._bytes[offset : offset + nbytes].view(dtype).reshape(shape)

    def raw(self, offset: int, nbytes: int) -> bytes:
        """A copy of ``nbytes`` from ``offset``."""
        return self._bytes[offset : offset + nbytes].tobytes()

    def release(self, view: NDArray[Any]) -> None:
        """Give the pages under ``view`` back to the system; a later read maps them again."""
        span = byte_span(view)
        if _DONTNEED is None or span == 0:
            return
        first = view.ctypes.data - self._bytes.ctypes.data
        start = first - first % mmap.PAGESIZE
        self._map.madvise(_DONTNEED, start, first + span - start)
