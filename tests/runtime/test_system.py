"""What machine this is: cores by affinity, hyper-threads and a container's quota."""

import mmap
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from edgegen.system import (
    available_memory,
    expand_user,
    fresh_memory,
    has_vnni,
    home_folder,
    peak_memory,
    physical_cores,
    processor,
    proportional_memory,
    second_level_cache,
    trim_memory,
)

LINUX = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no CPU affinity")


def machine(root: Path, *, siblings: int = 1, quota: str | None = None, v1: tuple[str, str] | None = None) -> Path:
    """A ``/sys`` in which every CPU this process may use has ``siblings`` hyper-threads."""
    for cpu in sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else range(os.cpu_count() or 1):
        topology = root / f"sys/devices/system/cpu/cpu{cpu}/topology"
        topology.mkdir(parents=True)
        first = cpu // siblings * siblings
        (topology / "thread_siblings_list").write_text(f"{first}-{first + siblings - 1}\n")
    cgroup = root / "sys/fs/cgroup"
    if quota is not None:
        cgroup.mkdir(parents=True)
        (cgroup / "cpu.max").write_text(quota)
    if v1 is not None:
        (cgroup / "cpu").mkdir(parents=True)
        for name, value in zip(("cpu.cfs_quota_us", "cpu.cfs_period_us"), v1, strict=True):
            (cgroup / "cpu" / name).write_text(value)
    return root


pytestmark = pytest.mark.usefixtures("all_cores")

CPUS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def test_every_cpu_is_a_core_where_the_system_does_not_tell(tmp_path: Path) -> None:
    assert physical_cores(tmp_path) == CPUS


def test_hyper_threads_of_a_core_are_one(tmp_path: Path) -> None:
    assert physical_cores(machine(tmp_path / "one")) == CPUS
    assert physical_cores(machine(tmp_path / "all", siblings=1024)) == 1


@pytest.mark.parametrize(
    ("quota", "cores"),
    [
        ("max 100000\n", CPUS),
        ("100000 100000\n", 1),
        ("50000 100000\n", 1),
        ("110000 100000\n", min(2, CPUS)),
        ("99900000 100000\n", CPUS),
        ("nonsense", CPUS),
        ("", CPUS),
        ("100000 0\n", CPUS),
    ],
)
def test_a_quota_is_rounded_up_to_whole_cores(tmp_path: Path, quota: str, cores: int) -> None:
    assert physical_cores(machine(tmp_path, quota=quota)) == cores


@pytest.mark.parametrize(
    ("quota", "period", "cores"), [("-1\n", "100000\n", CPUS), ("90000\n", "100000\n", 1), ("x", "y", CPUS)]
)
def test_a_quota_of_the_older_kind_counts_too(tmp_path: Path, quota: str, period: str, cores: int) -> None:
    assert physical_cores(machine(tmp_path, v1=(quota, period))) == cores


@LINUX
def test_affinity_is_respected() -> None:
    code = (
        "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\n"
        "from edgegen.system import physical_cores; print(physical_cores())"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "1\n"


def test_there_is_at_least_one_core_and_no_more_than_cpus() -> None:
    assert 1 <= physical_cores() <= CPUS


@pytest.mark.skipif(not Path("/proc/self/smaps_rollup").exists(), reason="the system does not tell shares of memory")
def test_the_share_of_memory_follows_what_is_held_and_is_below_the_peak() -> None:
    before = proportional_memory()
    held = mmap.mmap(-1, 1 << 25)  # of the system's, and not what the process has freed before
    held.write(os.urandom(1 << 16) * 512)
    after, peak = proportional_memory(), peak_memory()
    assert before is not None
    assert after is not None
    assert peak is not None
    assert after - before > len(held) / 2
    assert after <= peak + (1 << 20)


@pytest.mark.parametrize(
    ("group", "expected"),
    [
        ({}, 4_000_000 * 1024),
        ({"max": "max\n", "current": "5", "stat": "inactive_file 1\n"}, 4_000_000 * 1024),
        ({"max": "1000000", "current": "900000", "stat": "anon 7\ninactive_file 300000\nslab 1\n"}, 400_000),
        ({"max": "1000", "current": "2000", "stat": "inactive_file 0\n"}, 0),
    ],
    ids=["no container", "no limit", "files count as free", "beyond the limit"],
)
def test_free_memory_is_what_the_container_leaves(tmp_path: Path, group: dict[str, str], expected: int) -> None:
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/meminfo").write_text("MemTotal: 9000000 kB\nMemAvailable:    4000000 kB\n")
    (tmp_path / "sys/fs/cgroup").mkdir(parents=True)
    for name, text in group.items():
        (tmp_path / f"sys/fs/cgroup/memory.{name}").write_text(text)
    assert available_memory(tmp_path) == expected


def test_where_the_system_tells_nothing_free_memory_is_what_is_installed(tmp_path: Path) -> None:
    free = available_memory(tmp_path)
    assert free is None or free > 1 << 26


def test_the_processor_has_a_name_of_one_line() -> None:
    assert processor()
    assert "\n" not in processor()


def test_giving_memory_back_never_fails() -> None:
    trim_memory()


def test_the_home_is_where_the_environment_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("USERPROFILE", str(tmp_path))
    monkeypatch.setenv("EDGEGEN_HOME", "~/models")
    assert home_folder() == tmp_path / "models"
    monkeypatch.setenv("EDGEGEN_HOME", "")
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    assert home_folder().name == "edgegen"
    assert tmp_path in home_folder().parents


def test_a_home_that_nobody_knows_stays_as_it_is_written() -> None:
    assert expand_user(Path("~nobody-at-all/x")) == Path("~nobody-at-all/x")


def test_the_second_level_cache_is_what_the_c_library_says() -> None:
    size = second_level_cache()
    assert size is None or 1 << 15 <= size <= 1 << 30
    if sys.platform == "linux" and (tool := shutil.which("getconf")):
        told = subprocess.run([tool, "LEVEL2_CACHE_SIZE"], capture_output=True, text=True, check=False).stdout.strip()
        assert str(size or 0) == (told or "0")


@pytest.mark.parametrize(
    ("cpuinfo", "expected"),
    [
        ("flags\t\t: fpu avx2 avx512_vnni\n", True),
        ("flags\t\t: fpu avx2 avx_vnni fma\n", True),
        ("flags\t\t: fpu avx2 avx512f avx_vnni_int8\n", False),
        ("Features\t: fp asimd asimddp i8mm\n", False),
        (None, False),
    ],
)
def test_processors_with_vnni_are_known_by_their_flags(tmp_path: Path, cpuinfo: str | None, expected: bool) -> None:
    if cpuinfo is not None:
        (tmp_path / "proc").mkdir()
        (tmp_path / "proc/cpuinfo").write_text(cpuinfo)
    assert has_vnni(tmp_path) is expected


def test_fresh_memory_is_empty_and_takes_none_until_it_is_written() -> None:
    before = proportional_memory()
    memory = fresh_memory(1 << 28)
    assert (memory[0], memory[-1]) == (0, 0)
    if before is not None:
        assert (proportional_memory() or 0) - before < 1 << 24
    memory[5] = 7
    assert memory[5] == 7


def test_what_the_system_does_not_have_is_said() -> None:
    with pytest.raises(MemoryError, match="the system has no 4,611,686,018,427,387,904 bytes of memory left"):
        fresh_memory(1 << 62)
