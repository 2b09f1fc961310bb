"""Cores on recorded machines: hyper-threads, kinds of cores, affinity, and quotas of containers and jobs."""

import struct

import pytest

from edgegen.system import Cores, Source, cores, physical_cores
from edgegen.system.cores import cpu_list
from tests.runtime.system.recorded import (
    CPU,
    Recorded,
    hybrid_x86,
    mac,
    pi_4,
    pi_5,
    rock_5,
    topology,
    windows,
    windows_core,
)


@pytest.mark.parametrize(
    ("machine", "expected"),
    [
        (hybrid_x86(), Cores(16, 12, 4)),
        (hybrid_x86(cpus=[0, 2, 3, 9]), Cores(4, 3, 2)),
        (hybrid_x86(cpus=[8, 9, 10]), Cores(3, 3, 3)),
        (pi_5(), Cores(4, 4, 4)),
        (pi_4(), Cores(4, 4, 4)),
        (rock_5(), Cores(8, 8, 4)),
        (windows(), Cores(16, 12, 4)),
        (mac(), Cores(8, 8, 4)),
        (Recorded(cpus=range(6)), Cores(6, 6, 6)),
        (Recorded("win32", cpus=range(6)), Cores(6, 6, 6)),
        (Recorded("darwin", cpus=range(6)), Cores(6, 6, 6)),
        (Recorded("freebsd14", cpus=range(6)), Cores(6, 6, 6)),
    ],
    ids="hybrid affinity efficiency pi5 pi4 rock windows mac untold untold-windows untold-mac other".split(),
)
def test_the_cores_of_recorded_machines(machine: Source, expected: Cores) -> None:
    assert cores(machine) == expected
    assert physical_cores(machine) == expected.performance


def test_of_three_kinds_of_arm_cores_both_fast_ones_count() -> None:
    """As phones and Arm laptops have them: four slow cores, three fast ones, and a fastest one."""
    capacities = [325] * 4 + [910] * 3 + [1024]
    files = {f"{CPU}{cpu}/cpu_capacity": f"{capacity}\n" for cpu, capacity in enumerate(capacities)}
    machine = Recorded(machine="aarch64", files=files | topology((cpu,) for cpu in range(8)), cpus=range(8))
    assert cores(machine) == Cores(8, 8, 4)


def test_of_three_kinds_of_cores_windows_says_which_is_fastest() -> None:
    """As hybrids with low-power cores have them: two of class 0, eight of class 1, six of class 2 with two threads."""
    low = [windows_core(0, 1 << n) for n in (20, 21)]
    efficient = [windows_core(1, 1 << n) for n in range(12, 20)]
    fast = [windows_core(2, 0b11 << 2 * n) for n in range(6)]
    told = windows(
        GetLogicalProcessorInformationEx=b"".join([*low, *efficient, *fast]),
        GetProcessAffinityMask=struct.pack("<Q", (1 << 22) - 1),
    )
    assert cores(told) == Cores(22, 16, 6)
    assert cores(told).at_once == 22


def test_a_mac_of_one_kind_of_cores_uses_all() -> None:
    """Macs with Intel's processors have no performance levels."""
    machine = Recorded("darwin", "x86_64", calls={"hw.physicalcpu": struct.pack("<i", 4)}, cpus=range(8))
    assert cores(machine) == Cores(8, 4, 4)


def quota_v2(text: str, folder: str = "") -> dict[str, str]:
    return {f"/sys/fs/cgroup{folder}/cpu.max": text}


def quota_v1(quota: str, period: str, folder: str = "") -> dict[str, str]:
    root = f"/sys/fs/cgroup/cpu{folder}"
    return {f"{root}/cpu.cfs_quota_us": quota, f"{root}/cpu.cfs_period_us": period}


@pytest.mark.parametrize(
    ("files", "quota", "usable"),
    [
        (quota_v2("max 100000\n"), None, 4),
        (quota_v2("100000 100000\n"), 1.0, 1),
        (quota_v2("50000 100000\n"), 0.5, 1),
        (quota_v2("110000 100000\n"), 1.1, 2),
        (quota_v2("99900000 100000\n"), 999.0, 4),
        (quota_v2("nonsense"), None, 4),
        (quota_v2(""), None, 4),
        (quota_v2("100000 0\n"), None, 4),
        (quota_v1("-1\n", "100000\n"), None, 4),
        (quota_v1("90000\n", "100000\n"), 0.9, 1),
        (quota_v1("x", "y"), None, 4),
        ({"/proc/self/cgroup": "0::/a.slice/b.service\n"} | quota_v2("200000 100000\n", "/a.slice"), 2.0, 2),
        (
            {"/proc/self/cgroup": "0::/a.slice/b.service\n"}
            | quota_v2("200000 100000\n", "/a.slice")
            | quota_v2("100000 100000\n", "/a.slice/b.service"),
            1.0,
            1,
        ),
        ({"/proc/self/cgroup": "0::/../../outside\n"} | quota_v2("100000 100000\n", "/outside"), None, 4),
        (
            {"/proc/self/cgroup": "4:cpu,cpuacct:/docker/ab12\n3:cpuset:/\n"}
            | quota_v1("300000", "100000", "/docker/ab12"),
            3.0,
            3,
        ),
        ({"/proc/self/cgroup": "4:cpu,cpuacct:/docker/ab12\n"} | quota_v1("100000", "100000"), 1.0, 1),
    ],
)
def test_quotas_of_containers(files: dict[str, str], quota: float | None, usable: int) -> None:
    machine = Recorded(files=topology((cpu,) for cpu in range(4)) | files)
    assert cores(machine).quota == quota
    assert physical_cores(machine) == cores(machine).at_once == usable


@pytest.mark.parametrize(
    ("flags", "rate", "quota"), [(0b101, 2500, 4.0), (0b101, 10_000, None), (0b1, 2500, None), (0, 0, None)]
)
def test_a_job_of_windows_limits_the_cpus(flags: int, rate: int, quota: float | None) -> None:
    assert cores(windows(JobObjectCpuRateControlInformation=struct.pack("<II", flags, rate))).quota == quota


def test_windows_counts_the_cpus_that_the_process_may_use() -> None:
    assert cores(windows(GetProcessAffinityMask=struct.pack("<Q", 0b1101))) == Cores(3, 2, 2)
    everything = cores(windows(GetProcessAffinityMask=struct.pack("<Q", 0)))  # it is in several groups
    assert everything == Cores(16, 12, 4)


def test_windows_counts_the_cores_of_every_group() -> None:
    two_groups = b"".join(windows_core(0, 0b11 << 2 * n, group) for group in (0, 1) for n in range(32))
    machine = windows(GetLogicalProcessorInformationEx=two_groups, GetProcessAffinityMask=struct.pack("<Q", 0))
    assert cores(machine) == Cores(128, 64, 64)


@pytest.mark.parametrize("cut", [1, 20, 47])
def test_an_answer_that_ends_early_is_read_as_far_as_it_goes(cut: int) -> None:
    whole = windows_core(0, 1) + windows_core(0, 2)
    assert cores(windows(GetLogicalProcessorInformationEx=whole[:-cut])) == Cores(1, 1, 1)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0-3,8\n", [0, 1, 2, 3, 8]), ("5", [5]), ("", []), ("x", []), ("1-2,y", [])],
)
def test_lists_of_cpus(text: str, expected: list[int]) -> None:
    assert sorted(cpu_list(text)) == expected
