"""call_windows(): raw answers of the Windows API and of the registry, which tests replace by recorded bytes."""

import ctypes
import struct
import sys

_PROCESSOR_CORES = 0
_JOB_CLASSES = {
    "JobObjectExtendedLimitInformation": (9, 144),
    "JobObjectCpuRateControlInformation": (15, 8),
    "JobObjectMemoryUsageInformation": (28, 16),
}
"""Queries of QueryInformationJobObject for this process's job: the number of the class, and its bytes on 64 bits."""


def call_windows(question: str) -> bytes | None:
    """Return the answer of Windows, as :meth:`~edgegen.system.source.Source.call` describes it; None on other
    systems."""
    if sys.platform != "win32":
        return None
    kernel = ctypes.WinDLL("kernel32", use_last_error=True)
    process = ctypes.c_void_p(-1)  # the result of GetCurrentProcess
    if question.startswith("HKLM\\"):
        return _registry(question)
    if question == "GetLogicalProcessorInformationEx":
        size = ctypes.c_uint32(0)
        kernel.GetLogicalProcessorInformationEx(_PROCESSOR_CORES, None, ctypes.byref(size))
        room = ctypes.create_string_buffer(max(1, size.value))
        done = kernel.GetLogicalProcessorInformationEx(_PROCESSOR_CORES, room, ctypes.byref(size))
        return room.raw[: size.value] if done else None
    if question == "GetProcessAffinityMask":
        own, of_system = ctypes.c_size_t(0), ctypes.c_size_t(0)
        done = kernel.GetProcessAffinityMask(process, ctypes.byref(own), ctypes.byref(of_system))
        return struct.pack("<Q", own.value) if done else None
    if question in _JOB_CLASSES:
        number, size = _JOB_CLASSES[question]
        room = ctypes.create_string_buffer(size)
        return room.raw if kernel.QueryInformationJobObject(None, number, room, size, None) else None
    if question == "GlobalMemoryStatusEx":
        room = ctypes.create_string_buffer(struct.pack("<I", 64), 64)
        return room.raw if kernel.GlobalMemoryStatusEx(room) else None
    if question == "K32GetProcessMemoryInfo":
        room = ctypes.create_string_buffer(struct.pack("<I", 72), 72)
        return room.raw if kernel.K32GetProcessMemoryInfo(process, room, 72) else None
    if question == "QueryUnbiasedInterruptTime":
        ticks = ctypes.c_uint64(0)
        return bytes(ticks) if kernel.QueryUnbiasedInterruptTime(ctypes.byref(ticks)) else None
    if question == "GetConsoleWindow":
        kernel.GetConsoleWindow.restype = ctypes.c_size_t
        window = kernel.GetConsoleWindow()
        return struct.pack("<Q", window) if window else None
    return None


def _registry(question: str) -> bytes | None:
    if sys.platform != "win32":
        return None
    import winreg

    key, _, name = question.removeprefix("HKLM\\").rpartition("\\")
    try:
        with winreg.OpenKey(winreg.HKEY_LOCAL_MACHINE, key) as opened:
            return str(winreg.QueryValueEx(opened, name)[0]).encode()
    except OSError:
        return None
