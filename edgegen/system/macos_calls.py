"""call_macos(): raw answers of macOS, sysctl among them, which tests replace by recorded bytes."""

import ctypes
import os
import sys

_VM_INFO64 = 4
_VM_INFO64_WORDS = 40
"""Room for what host_statistics64 counts, in words of 32 bits; systems fill as much as they have."""

_RUSAGE_V2 = 2
_RUSAGE_V2_BYTES = 160


def call_macos(question: str) -> bytes | None:
    """Return the answer of macOS, as :meth:`~edgegen.system.source.Source.call` describes it; None on other systems."""
    if sys.platform != "darwin":
        return None
    library = ctypes.CDLL(None)
    if question == "host_statistics64":
        room, count = ctypes.create_string_buffer(4 * _VM_INFO64_WORDS), ctypes.c_uint32(_VM_INFO64_WORDS)
        failed = library.host_statistics64(library.mach_host_self(), _VM_INFO64, room, ctypes.byref(count))
        return None if failed else room.raw[: 4 * count.value]
    if question == "proc_pid_rusage":
        room = ctypes.create_string_buffer(_RUSAGE_V2_BYTES)
        return None if library.proc_pid_rusage(os.getpid(), _RUSAGE_V2, room) else room.raw
    size = ctypes.c_size_t(0)
    name = question.encode()
    if library.sysctlbyname(name, None, ctypes.byref(size), None, 0):
        return None
    room = ctypes.create_string_buffer(max(1, size.value))
    return None if library.sysctlbyname(name, room, ctypes.byref(size), None, 0) else room.raw[: size.value]
