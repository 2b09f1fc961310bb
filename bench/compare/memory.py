"""Memory of this process: what it has to itself, what it has mapped from files, and its peak."""

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path

_STATUS, _ROLLUP = Path("/proc/self/status"), Path("/proc/self/smaps_rollup")


@dataclass(frozen=True)
class Memory:
    """Bytes of this process that are in memory now; shared pages are counted by share (PSS).

    Attributes:
        private: backed by no file: it cannot be dropped and read again, or shared with another process.
        mapped: pages of files: libraries, and weights that are used where the file has them.
    """

    private: int
    mapped: int


def memory() -> Memory | None:
    """None where the system does not tell: Linux does, since 5.4."""
    if not _ROLLUP.exists():
        return None
    private = status_bytes(_ROLLUP, "Pss_Anon:") + status_bytes(_ROLLUP, "SwapPss:")
    return Memory(private, status_bytes(_ROLLUP, "Pss_File:"))


def peak_bytes() -> int:
    """The largest resident set so far.

    Not `ru_maxrss` on Linux: it survives `exec`, so it would report the parent's peak.
    """
    if _STATUS.exists():
        return status_bytes(_STATUS, "VmHWM:")
    if sys.platform == "win32":
        return importlib.import_module("psutil").Process().memory_info().peak_wset
    resource = importlib.import_module("resource")
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def status_bytes(path: Path, key: str) -> int:
    """Return the bytes that a file of ``/proc`` has after ``key``, in kB there."""
    for line in path.read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) * 1024
    raise ValueError(f"{path} has no {key}")
