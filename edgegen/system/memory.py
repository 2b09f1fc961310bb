"""Memory: what is free, in a container too, what this process takes, and memory that is mapped and given back."""

import ctypes
import mmap
import struct
import sys
from collections.abc import Iterator
from contextlib import suppress

from edgegen.system.cgroup import Group, groups_of
from edgegen.system.cores import macos_number
from edgegen.system.source import LOCAL, Source

_PRIVATE = 0 if sys.platform == "win32" else mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS


def available_memory(source: Source = LOCAL) -> int | None:
    """Bytes of memory that may be used without driving others out; None where the system does not tell.

    On Linux what the kernel calls available, or what the container's limit leaves (cgroup v1 and v2), where files that
    were not read lately count as free. On Windows what it calls available, or less where less can be committed: of the
    system's memory and page files, or of a job's limit. On macOS free and inactive pages.
    """
    if source.system == "win32":
        told = source.call("GlobalMemoryStatusEx")
        of_system = [] if told is None else [*struct.unpack_from("<8xQ8xQ", told, 8)]
        return min([*of_system, *_left_in_job(source)], default=None)
    if source.system == "darwin":
        return _macos_free(source) or installed_memory(source)
    free = _kibibytes(source.read("/proc/meminfo"), "MemAvailable:")
    left = [room for group in groups_of(source, "memory") if (room := _left_in(group)) is not None]
    known = left if free is None else [*left, free]
    return min(known) if known else installed_memory(source)


def available_gpu_memory(source: Source = LOCAL) -> int | None:
    """Bytes of free memory of the first CUDA GPU, by the driver's ``nvidia-smi``; None where that is unknown."""
    told = source.call("nvidia-smi memory.free")
    first = told.decode(errors="replace").split("\n")[0].strip() if told else ""
    return int(first) << 20 if first.isdecimal() else None


def installed_memory(source: Source = LOCAL) -> int | None:
    """Bytes of memory that the machine has; None where the system does not tell."""
    if source.system == "win32":
        told = source.call("GlobalMemoryStatusEx")
        return struct.unpack_from("<Q", told, 8)[0] if told else None
    if source.system == "darwin":
        return macos_number(source, "hw.memsize")
    return _kibibytes(source.read("/proc/meminfo"), "MemTotal:")


def memory_limit(source: Source = LOCAL) -> int | None:
    """Bytes that a container may take (cgroup v1 and v2), or a job of Windows; the tightest limit, None without one."""
    if source.system == "win32":
        return min(_job_limits(source).values(), default=None)
    limits = [limit for group in groups_of(source, "memory") if (limit := _limit_of(group)) is not None]
    return min(limits, default=None)


def address_space_limit(source: Source = LOCAL) -> int | None:
    """Bytes that this process may map (``ulimit -v``), on Linux; None without a limit, and on other systems."""
    for line in (source.read("/proc/self/limits") or "").splitlines():
        if line.startswith("Max address space"):
            words = line.removeprefix("Max address space").split()
            return int(words[0]) if words and words[0].isdecimal() else None
    return None


_NO_LIMIT = 1 << 60
"""Limits from here on mean none: without a limit, cgroup v1 reports a little below 2 ** 63."""


def _limit_of(group: Group) -> int | None:
    text = (group.read("memory.max" if group.version == 2 else "memory.limit_in_bytes") or "").strip()
    return int(text) if text.isdecimal() and int(text) < _NO_LIMIT else None


def _left_in(group: Group) -> int | None:
    """Bytes that a group's limit leaves; files that were not read lately are dropped when memory is needed."""
    limit = _limit_of(group)
    of_v2 = group.version == 2
    used = (group.read("memory.current" if of_v2 else "memory.usage_in_bytes") or "").strip()
    if limit is None or not used.isdecimal():
        return None
    files = _after(group.read("memory.stat"), "inactive_file" if of_v2 else "total_inactive_file") or 0
    return max(0, limit - int(used) + files)


_LIMITS_OF_JOB = {"process": (0x100, 112), "job": (0x200, 120)}
"""Limits of committed memory in JOBOBJECT_EXTENDED_LIMIT_INFORMATION: the flag that one is set, and its place."""


def _job_limits(source: Source) -> dict[str, int]:
    """Return the bytes that the job lets a process, or all of its processes, commit."""
    told = source.call("JobObjectExtendedLimitInformation")
    if told is None or len(told) < 144:
        return {}
    (flags,) = struct.unpack_from("<I", told, 16)
    return {
        whose: struct.unpack_from("<Q", told, place)[0]
        for whose, (flag, place) in _LIMITS_OF_JOB.items()
        if flags & flag
    }


def _left_in_job(source: Source) -> Iterator[int]:
    """Yield the bytes that may still be committed under each limit of the job."""
    for whose, limit in _job_limits(source).items():
        told = source.call("K32GetProcessMemoryInfo" if whose == "process" else "JobObjectMemoryUsageInformation")
        place = 56 if whose == "process" else 0  # PagefileUsage, which is what it has committed; JobMemory
        used = struct.unpack_from("<Q", told, place)[0] if told and len(told) >= place + 8 else 0
        yield max(0, limit - used)


def _macos_free(source: Source) -> int | None:
    told, page = source.call("host_statistics64"), macos_number(source, "hw.pagesize")
    if told is None or page is None or len(told) < 16:
        return None
    free, _, inactive, _ = struct.unpack_from("<4I", told)
    return (free + inactive) * page


def peak_memory(source: Source = LOCAL) -> int | None:
    """The most memory this process has held, in bytes; None where the system does not tell."""
    if source.system == "win32":
        told = source.call("K32GetProcessMemoryInfo")
        return struct.unpack_from("<Q", told, 8)[0] if told else None
    # Linux: getrusage would count what the parent held before this program was started.
    told = _kibibytes(source.read("/proc/self/status"), "VmHWM:")
    if told is not None or sys.platform == "win32":
        return told
    import resource

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if source.system == "darwin" else peak * 1024  # macOS counts bytes, the others KiB


def proportional_memory(source: Source = LOCAL) -> int | None:
    """This process's share of memory in bytes; None where the system does not tell.

    On Linux its proportional set size (PSS): of a page that several processes hold, to each its part. On macOS the
    physical footprint, on Windows the working set, which counts a shared page in full.
    """
    if source.system == "win32":
        told = source.call("K32GetProcessMemoryInfo")
        return struct.unpack_from("<Q", told, 16)[0] if told else None
    if source.system == "darwin":
        told = source.call("proc_pid_rusage")
        return struct.unpack_from("<Q", told, 72)[0] if told and len(told) >= 80 else None
    return _kibibytes(source.read("/proc/self/smaps_rollup"), "Pss:")


def _kibibytes(text: str | None, name: str) -> int | None:
    told = _after(text, name)
    return None if told is None else told * 1024


def _after(text: str | None, name: str) -> int | None:
    """The number after a name at the beginning of a line."""
    for line in (text or "").splitlines():
        words = line.split()
        if len(words) > 1 and words[0] == name and words[1].isdecimal():
            return int(words[1])
    return None


def fresh_memory(size: int) -> mmap.mmap:
    """``size`` bytes, at least one, mapped from the system: pages take memory once they are written, and are given back
    when the object is freed. The C library would keep them, and reuse pages that have been written before.

    Raises:
        MemoryError: the system has none left.
    """
    try:
        return mmap.mmap(-1, size) if sys.platform == "win32" else mmap.mmap(-1, size, flags=_PRIVATE)
    except OSError as error:
        raise MemoryError(f"the system has no {size:,} bytes of memory left: {error.strerror}") from error


def trim_memory() -> None:
    """Give freed memory back to the system where the C library keeps it (glibc); elsewhere nothing happens."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


def share_freed_memory(*, large: bool = False) -> None:
    """Have all threads of this process take memory from one pool of the C library (glibc), and give it back there.

    Each thread has a pool of its own otherwise, and keeps in it what others could use: an export on two cores takes
    30 MB more so. ``large``: large arrays too, and :func:`trim_memory` alone gives memory back to the system. Otherwise
    the system maps each of them, and clears it page by page: a tenth of an export's time. To be called before there are
    threads; elsewhere nothing happens.
    """
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            mallopt = ctypes.CDLL(None).mallopt
            mallopt(_M_ARENA_MAX, 1)
            for limit in (_M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD) if large else ():
                mallopt(limit, 1 << 30)


_M_ARENA_MAX, _M_MMAP_THRESHOLD, _M_TRIM_THRESHOLD = -8, -3, -1
