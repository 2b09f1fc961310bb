"""change_time(): when a file was last changed, in any way, whatever its modification time was set to."""

import os
import struct
import sys
from collections.abc import Callable
from pathlib import Path

_BASIC_INFO = struct.Struct("<4qI4x")
"""``FILE_BASIC_INFO``: creation, last access, last write and change in units of 100 ns since 1601, and attributes."""

_UNIX_EPOCH = 116_444_736_000_000_000
_FILE_BASIC_INFO = 0
_FILE_READ_ATTRIBUTES = 0x80
_SHARE_ALL = 7
_OPEN_EXISTING = 3
_FILE_FLAG_BACKUP_SEMANTICS = 0x0200_0000


def change_time(path: Path, ask: Callable[[Path], bytes] | None = None) -> int | None:
    """Nanoseconds since 1970; None where the file system does not keep it.

    Elsewhere than on Windows it is ``st_ctime``, which there is the time of creation. ``ask`` returns Windows's
    ``FILE_BASIC_INFO``.

    Raises:
        OSError: the file cannot be asked.
    """
    if ask is None:
        if sys.platform != "win32":
            return path.stat().st_ctime_ns
        ask = _basic_info
    changed = _BASIC_INFO.unpack(ask(path))[3]
    return (changed - _UNIX_EPOCH) * 100 if changed > 0 else None


def _basic_info(path: Path) -> bytes:
    if sys.platform != "win32":
        raise OSError(f"{path}: only Windows has FILE_BASIC_INFO")
    import ctypes

    kernel = ctypes.WinDLL("kernel32", use_last_error=True)
    kernel.CreateFileW.restype = ctypes.c_void_p
    kernel.CreateFileW.argtypes = [
        *(ctypes.c_wchar_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p),
        *(ctypes.c_uint32, ctypes.c_uint32, ctypes.c_void_p),
    ]
    access = (_FILE_READ_ATTRIBUTES, _SHARE_ALL, None, _OPEN_EXISTING, _FILE_FLAG_BACKUP_SEMANTICS, None)
    handle = kernel.CreateFileW(os.fspath(path), *access)
    if handle in (None, ctypes.c_void_p(-1).value):
        raise ctypes.WinError(ctypes.get_last_error())
    try:
        room = ctypes.create_string_buffer(_BASIC_INFO.size)
        if not kernel.GetFileInformationByHandleEx(ctypes.c_void_p(handle), _FILE_BASIC_INFO, room, _BASIC_INFO.size):
            raise ctypes.WinError(ctypes.get_last_error())
    finally:
        kernel.CloseHandle(ctypes.c_void_p(handle))
    return room.raw
