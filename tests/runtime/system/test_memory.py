"""Memory on recorded machines: free, in containers too, at most, and this process's share."""

import struct
import subprocess
import sys

import pytest

from edgegen.system import (
    Source,
    address_space_limit,
    available_memory,
    installed_memory,
    memory_limit,
    peak_memory,
    proportional_memory,
)
from tests.runtime.system.recorded import Recorded, job_limits, mac, memory_status, pi_5, windows

MEMINFO = {"/proc/meminfo": "MemTotal: 9000000 kB\nMemFree: 1 kB\nMemAvailable:    4000000 kB\n"}
FREE = 4_000_000 * 1024
V2 = "/sys/fs/cgroup/memory."
V1 = "/sys/fs/cgroup/memory/memory."


@pytest.mark.parametrize(
    ("machine", "free", "installed"),
    [
        (pi_5(), 7_340_032 * 1024, 8_245_248 * 1024),
        (windows(), 9_912_344_576, 16_890_011_648),
        (mac(), (74_211 + 298_114) * 16_384, 17_179_869_184),
        (Recorded(), None, None),
        (Recorded("win32"), None, None),
        (Recorded("darwin"), None, None),
    ],
    ids=["pi", "windows", "mac", "untold", "untold-windows", "untold-mac"],
)
def test_free_and_installed_memory(machine: Source, free: int | None, installed: int | None) -> None:
    assert available_memory(machine) == free
    assert installed_memory(machine) == installed


@pytest.mark.parametrize(
    ("files", "expected", "limit"),
    [
        ({}, FREE, None),
        ({V2 + "max": "max\n", V2 + "current": "5", V2 + "stat": "inactive_file 1\n"}, FREE, None),
        (
            {V2 + "max": "1000000", V2 + "current": "900000", V2 + "stat": "anon 7\ninactive_file 300000\nslab 1\n"},
            400_000,
            1_000_000,
        ),
        ({V2 + "max": "1000", V2 + "current": "2000", V2 + "stat": "inactive_file 0\n"}, 0, 1000),
        ({V2 + "max": "1000000", V2 + "current": "900000"}, 100_000, 1_000_000),
        ({V1 + "limit_in_bytes": "9223372036854771712\n", V1 + "usage_in_bytes": "5\n"}, FREE, None),
        (
            {
                V1 + "limit_in_bytes": "1000000\n",
                V1 + "usage_in_bytes": "700000\n",
                V1 + "stat": "inactive_file 1\ntotal_inactive_file 200000\n",
            },
            500_000,
            1_000_000,
        ),
        (
            {
                "/proc/self/cgroup": "0::/user.slice/app.scope\n",
                "/sys/fs/cgroup/user.slice/memory.max": "3000000",
                "/sys/fs/cgroup/user.slice/memory.current": "2800000",
                "/sys/fs/cgroup/user.slice/app.scope/memory.max": "1000000",
                "/sys/fs/cgroup/user.slice/app.scope/memory.current": "100000",
            },
            200_000,
            1_000_000,
        ),
    ],
    ids=["none", "v2 no limit", "v2 files are free", "v2 beyond", "v2 no stat", "v1 no limit", "v1", "parents"],
)
def test_free_memory_is_what_the_container_leaves(files: dict[str, str], expected: int, limit: int | None) -> None:
    machine = Recorded(files=MEMINFO | files)
    assert available_memory(machine) == expected
    assert memory_limit(machine) == limit


def test_windows_has_no_more_memory_than_can_be_committed() -> None:
    """Physical memory is free, and the page files are full: an allocation fails."""
    assert (
        available_memory(windows(GlobalMemoryStatusEx=memory_status(16 << 30, 9 << 30, 17 << 30, 1 << 30))) == 1 << 30
    )


COMMITTED = 241_336_320
"""Bytes that the recorded process has committed."""


@pytest.mark.parametrize(
    ("calls", "left", "limit"),
    [
        ({"JobObjectExtendedLimitInformation": job_limits()}, 9_912_344_576, None),
        ({"JobObjectExtendedLimitInformation": b""}, 9_912_344_576, None),
        ({"JobObjectExtendedLimitInformation": job_limits(process=1 << 30)}, (1 << 30) - COMMITTED, 1 << 30),
        ({"JobObjectExtendedLimitInformation": job_limits(process=1 << 20)}, 0, 1 << 20),
        (
            {
                "JobObjectExtendedLimitInformation": job_limits(process=2 << 30, job=3 << 30),
                "JobObjectMemoryUsageInformation": struct.pack("<2Q", 5 << 29, 3 << 30),
            },
            1 << 29,
            2 << 30,
        ),
    ],
    ids=["none", "not told", "process", "process beyond", "job of several processes"],
)
def test_a_job_of_windows_limits_the_memory(calls: dict[str, bytes], left: int, limit: int | None) -> None:
    machine = windows(**calls)
    assert (available_memory(machine), memory_limit(machine)) == (left, limit)


def test_what_a_process_takes_on_each_system() -> None:
    assert (peak_memory(windows()), proportional_memory(windows())) == (312_000_512, 287_002_624)
    assert proportional_memory(mac()) == 271_433_728
    files = {
        "/proc/self/status": "Name:\tpython3\nVmPeak:\t  900000 kB\nVmHWM:\t  204800 kB\n",
        "/proc/self/smaps_rollup": "55d0-7ffe ---p 00000000 00:00 0 [rollup]\nRss:  200000 kB\nPss:  102400 kB\n",
    }
    linux = Recorded(files=files)
    assert (peak_memory(linux), proportional_memory(linux)) == (204_800 * 1024, 102_400 * 1024)
    assert proportional_memory(Recorded()) is None
    assert peak_memory(Recorded("win32")) is None


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no getrusage")
def test_the_peak_is_in_bytes_where_the_system_counts_kibibytes() -> None:
    mac_of_this_size, other = peak_memory(Recorded("darwin")), peak_memory(Recorded("freebsd14"))
    assert mac_of_this_size
    assert other == pytest.approx(1024 * mac_of_this_size, rel=0.1)


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        ("Max address space         unlimited            unlimited            bytes\n", None),
        ("Limit\nMax address space         204800000            unlimited            bytes\n", 204_800_000),
        ("Max open files 5 5 files\n", None),
        ("Max address space", None),
    ],
)
def test_the_limit_of_the_address_space(limits: str, expected: int | None) -> None:
    assert address_space_limit(Recorded(files={"/proc/self/limits": limits})) == expected
    assert address_space_limit(Recorded()) is None


@pytest.mark.skipif(sys.platform != "linux", reason="other systems' C libraries have no such pools")
def test_threads_leave_nothing_behind_once_they_share_a_pool() -> None:
    """In a process of its own: memory that many threads have used and freed goes back with a trim of the one pool."""
    program = """
import re, sys, threading, numpy as np
from pathlib import Path
from edgegen.system import share_freed_memory
if sys.argv[1] == "shared":
    share_freed_memory()
def use():
    for _ in range(5):
        kept = [np.ones(10_000) for _ in range(50)]
        del kept[:49]
        barrier.wait()
barrier = threading.Barrier(8)
threads = [threading.Thread(target=use) for _ in range(8)]
for thread in threads: thread.start()
for thread in threads: thread.join()
maps = Path("/proc/self/maps").read_text()
print(len(re.findall(r"^[0-9a-f]+000000-[0-9a-f]+ rw-p 00000000 00:00 0 *$", maps, re.M)))
"""
    pools = [
        int(subprocess.run([sys.executable, "-c", program, how], check=True, capture_output=True, text=True).stdout)
        for how in ("shared", "apart")
    ]
    assert pools[0] < pools[1]


@pytest.mark.skipif(sys.platform != "linux", reason="other systems' C libraries have no such limit")
def test_large_blocks_come_from_the_pool_where_that_is_wanted() -> None:
    """In a process of its own: what was freed is used again, and not mapped and cleared anew."""
    program = """
import resource, sys
from edgegen.system import share_freed_memory
share_freed_memory(large=sys.argv[1] == "large")
for _ in range(20):
    block = b"x" * (64 << 20)
    del block
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt)
"""
    large, usual = (
        int(subprocess.run([sys.executable, "-c", program, how], check=True, capture_output=True, text=True).stdout)
        for how in ("large", "usual")
    )
    assert large < usual / 4
