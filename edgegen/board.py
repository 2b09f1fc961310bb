"""What machine this is: the only place for questions whose answer depends on the operating system."""

import ctypes
import os
import sys
from contextlib import suppress
from functools import cache
from pathlib import Path


@cache
def physical_cores() -> int:
    """Physical cores this process may use: its CPU affinity and its container's quota respected, at least 1.

    Two hyper-threads of a core share one set of arithmetic units; a thread for each makes decoding slower, and one
    thread more than cores makes it several times slower.
    """
    allowed = _allowed_cpus()
    cores = {_core_of(cpu) for cpu in allowed}
    quota = _cgroup_quota()
    return max(1, min(len(cores), quota or len(cores)))


def _allowed_cpus() -> set[int]:
    if hasattr(os, "sched_getaffinity"):
        return os.sched_getaffinity(0)
    return set(range(os.cpu_count() or 1))


def _core_of(cpu: int) -> str:
    """A name that hyper-threads of one core share; the CPU itself where the system does not tell."""
    siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
    try:
        return siblings.read_text().strip()
    except OSError:
        return str(cpu)


def _cgroup_quota() -> int | None:
    """Whole CPUs that a cgroup v2 or v1 quota leaves, rounded up; None without a quota."""
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
    except (OSError, ValueError):
        try:
            quota = Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us").read_text().strip()
            period = Path("/sys/fs/cgroup/cpu/cpu.cfs_period_us").read_text().strip()
        except OSError:
            return None
    if not quota.isdecimal() or not period.isdecimal():
        return None
    return max(1, -(-int(quota) // int(period)))


def trim_memory() -> None:
    """Give freed memory back to the system where the C library keeps it (glibc); elsewhere nothing happens."""
    if sys.platform == "linux":
        with suppress(OSError, AttributeError):
            ctypes.CDLL(None).malloc_trim(0)


def home_folder() -> Path:
    """Where named bundles and remembered verifications live: ``EDGEGEN_HOME``, or the user's data folder."""
    from platformdirs import user_data_path

    return Path(os.environ.get("EDGEGEN_HOME") or user_data_path("edgegen", appauthor=False)).expanduser()
