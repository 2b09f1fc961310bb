"""System information and calls (cores, memory, caches, locks): all that depends on the operating system."""

import ctypes
import mmap
import os
import platform
import sys
from collections.abc import Generator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path


@cache
def physical_cores(root: Path = Path("/")) -> int:
    """Physical cores this process may use: its CPU affinity and its container's quota respected, at least 1.

    Two hyper-threads of a core share one set of arithmetic units; a thread for each makes decoding slower, and one
    thread more than cores makes it several times slower. ``root`` is where ``/sys`` is looked for.
    """
    cores = {_core_of(cpu, root) for cpu in _allowed_cpus()}
    quota = _cgroup_quota(root)
    return max(1, min(len(cores), quota or len(cores)))


def _allowed_cpus() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _core_of(cpu: int, root: Path) -> str:
    """A name that hyper-threads of one core share; the CPU itself where the system does not tell."""
    siblings = root / f"sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"
    try:
        return siblings.read_text().strip()
    except OSError:
        return str(cpu)


def _cgroup_quota(root: Path) -> int | None:
    """Whole CPUs that a cgroup v2 or v1 quota leaves, rounded up; None without a quota."""
    try:
        quota, period = (root / "sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = (root / "sys/fs/cgroup/cpu/cpu.cfs_quota_us").read_text().strip()
            period = (root / "sys/fs/cgroup/cpu/cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    if not quota.isdecimal() or not period.isdecimal() or not int(period):
        return None
    return max(1, -(-int(quota) // int(period)))


@cache
def processor_features(root: Path = Path("/")) -> str:
    """Identifies the kind of processor: a library may choose other kernels for another kind."""
    known = {"model name", "flags", "Features", "CPU implementer", "CPU part", "CPU variant", "isa"}
    try:
        text = (root / "proc/cpuinfo").read_text()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    lines = {line for line in text.splitlines() if line.partition(":")[0].strip() in known}
    return "\n".join([platform.machine(), *sorted(lines)])


def has_vnni(root: Path = Path("/")) -> bool:
    """Whether this x86-64 has VNNI, which adds products of 8-bit integers in 32 bits; False where it is not known."""
    words = processor_features(root).split()
    return "avx512_vnni" in words or "avx_vnni" in words


_PRIVATE = 0 if sys.platform == "win32" else mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS

_SC_LEVEL2_CACHE_SIZE = 191
"""glibc's number of the question; Python has no name for it."""


def second_level_cache() -> int | None:
    """Bytes of the second-level cache, as ONNX Runtime asks for it; None where the system does not tell."""
    if sys.platform == "linux":
        with suppress(OSError, ValueError):
            return max(0, os.sysconf(_SC_LEVEL2_CACHE_SIZE)) or None
    if sys.platform == "darwin":
        size, width = ctypes.c_int64(0), ctypes.c_size_t(8)
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).sysctlbyname(b"hw.l2cachesize", ctypes.byref(size), ctypes.byref(width), None, 0)
        return size.value or None
    return None


def peak_memory() -> int | None:
    """The most memory this process has held, in bytes; None where the system does not tell."""
    try:
        # Linux: getrusage would count what the parent held before this program was started.
        status = Path("/proc/self/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        pass
    if sys.platform == "win32":
        return None
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def available_memory(root: Path = Path("/")) -> int | None:
    """Bytes of memory that may be used without driving others out; None where the system does not tell.

    On Linux what the kernel calls available, or what the container's limit leaves (cgroup v2), where files that were
    not read lately count as free; elsewhere what is installed. ``root`` is where ``/proc`` and ``/sys`` are looked for.
    """
    try:
        free = int((root / "proc/meminfo").read_text().partition("MemAvailable:")[2].split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        return _installed_memory()
    with suppress(OSError, IndexError, ValueError):  # without a limit the file says "max"
        group = root / "sys/fs/cgroup"
        limit, used = (int((group / f"memory.{what}").read_text()) for what in ("max", "current"))
        used -= int((group / "memory.stat").read_text().partition("inactive_file ")[2].split()[0])
        free = min(free, max(0, limit - used))
    return free


def _installed_memory() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None


def proportional_memory() -> int | None:
    """This process's share of memory in bytes (PSS): of a page that several hold, to each its part. None: not told."""
    try:
        return int(Path("/proc/self/smaps_rollup").read_text().partition("\nPss:")[2].split()[0]) * 1024
    except (OSError, IndexError, ValueError):
        return None


def processor() -> str:
    """The processor's name, or at least its kind."""
    try:
        told = Path("/proc/cpuinfo").read_text("utf-8").partition("model name")[2]
    except (OSError, ValueError):
        told = ""
    return told.partition("\n")[0].strip("\t :") or platform.processor() or platform.machine()


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


@contextmanager
def locked(path: Path) -> Generator[bool]:
    """Lock the file ``path``; False where another process has it. The system unlocks it when a process is killed."""
    with path.open("ab") as file:
        try:
            if sys.platform == "win32":
                import msvcrt

                msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
            else:
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield False
        else:
            yield True


def sync_folder(folder: Path) -> None:
    """Make renames in ``folder`` durable over a power failure; Windows has no handle of a folder to sync."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def home_folder() -> Path:
    """Where named bundles and remembered verifications live: ``EDGEGEN_HOME``, or the user's data folder."""
    from platformdirs import user_data_path

    return expand_user(Path(os.environ.get("EDGEGEN_HOME") or user_data_path("edgegen", appauthor=False)))


def expand_user(path: Path) -> Path:
    """``path`` with ``~`` replaced; unchanged where that home is not known."""
    try:
        return path.expanduser()
    except RuntimeError:
        return path
