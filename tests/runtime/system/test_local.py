"""The machine that the tests run on: its cores, memory and folders."""

import mmap
import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from platformdirs import user_data_path

from edgegen.system import (
    LOCAL,
    Local,
    address_space_limit,
    available_memory,
    expand_user,
    fresh_memory,
    governor,
    home_folder,
    installed_memory,
    peak_memory,
    physical_cores,
    processor,
    proportional_memory,
    second_level_cache,
    temperature,
    trim_memory,
)
from tests.systems import needs_proc

LINUX = pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the system has no CPU affinity")


pytestmark = pytest.mark.usefixtures("all_cores")

CPUS = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@LINUX
def test_affinity_is_respected() -> None:
    code = (
        "import os; os.sched_setaffinity(0, [min(os.sched_getaffinity(0))])\n"
        "from edgegen.system import physical_cores; print(physical_cores())"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "1\n"


def test_there_is_at_least_one_core_and_no_more_than_cpus() -> None:
    assert 1 <= physical_cores() <= CPUS


@needs_proc
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


def test_some_memory_is_free_and_no_more_than_is_installed() -> None:
    free, installed = available_memory(), installed_memory()
    assert free is None or free > 1 << 26
    assert free is None or installed is None or free <= installed


@pytest.mark.parametrize("system", ["win32", "darwin"])
def test_systems_without_proc_are_not_asked_for_its_files(system: str) -> None:
    """On Windows, /proc is a folder that anyone may make; under Wine it is that of the host."""
    local = Local(system, {})
    assert local.read("/proc/self/status") is None
    assert local.names("/proc") == []
    assert (address_space_limit(local), governor(local), temperature(local)) == (None, None, None)


@pytest.mark.skipif(sys.platform != "linux", reason="the system has no /proc")
def test_linux_is_asked_for_its_files() -> None:
    local = Local("linux")
    assert "VmHWM:" in (local.read("/proc/self/status") or "")
    assert "self" in local.names("/proc")


@pytest.mark.parametrize(
    ("environment", "machine"),
    [
        ({"PROCESSOR_ARCHITECTURE": "AMD64"}, "AMD64"),
        ({"PROCESSOR_ARCHITECTURE": "ARM64"}, "ARM64"),
        ({"PROCESSOR_ARCHITECTURE": "x86", "PROCESSOR_ARCHITEW6432": "AMD64"}, "AMD64"),
        ({}, ""),
    ],
)
def test_windows_tells_the_architecture_in_its_environment(environment: dict[str, str], machine: str) -> None:
    assert Local("win32", environment).machine == machine


def test_the_architecture_is_the_one_that_python_tells() -> None:
    assert LOCAL.machine == platform.machine()


def test_no_import_asks_for_the_host_name() -> None:
    """``platform.uname()`` does on Windows, and asks WMI in Python 3.12; libraries may, and are imported before."""
    code = """
import platform, sys
import numpy, onnxruntime, tokenizers

def refuse():
    raise SystemExit("the name of the host was asked for")

def audit(event, arguments):
    if event.startswith("socket."):
        raise SystemExit(f"a socket was touched: {event}")

platform.uname = refuse
sys.addaudithook(audit)
from edgegen import LLM, BundleStore
from edgegen.system import cores, processor
cores(), processor()
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


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
    if sys.platform != "win32":  # where the folder is a setting of the account, and no variable's
        assert tmp_path in home_folder().parents


@pytest.mark.parametrize("data", [None, "", "relative", "/data/of mine"])
def test_the_data_folder_is_the_one_of_platformdirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, data: str | None
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("EDGEGEN_HOME", raising=False)
    monkeypatch.delenv("XDG_DATA_HOME", raising=False)
    if data is not None:
        monkeypatch.setenv("XDG_DATA_HOME", data)
    assert home_folder() == user_data_path("edgegen", appauthor=False)


@pytest.mark.skipif(sys.platform == "win32", reason="Python takes every user's home for a neighbour of one's own")
def test_a_home_that_nobody_knows_stays_as_it_is_written() -> None:
    assert expand_user(Path("~nobody-at-all/x")) == Path("~nobody-at-all/x")


def test_the_second_level_cache_is_what_the_c_library_says() -> None:
    size = second_level_cache()
    assert size is None or 1 << 15 <= size <= 1 << 30
    if sys.platform == "linux" and (tool := shutil.which("getconf")):
        told = subprocess.run([tool, "LEVEL2_CACHE_SIZE"], capture_output=True, text=True, check=False).stdout.strip()
        assert str(size or 0) == (told or "0")


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
