"""An aarch64 system in a folder, and the Raspberry Pis that an emulator plays on it.

Debian's packages give Python and its C libraries, PyPI's wheels for aarch64 all that `pip install edgegen` brings, and
a cross compiler the kernels. They are unpacked, not installed: this machine's own packages stay as they are.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import requires, version
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).resolve().parents[2]
WORKER = Path(__file__).with_name("worker.py")
COMMANDS = Path(__file__).with_name("commands.py")
COMPILER = "aarch64-linux-gnu-gcc"

DEBIAN_PACKAGES = ("python3", "libgomp1", "libstdc++6")
SAME_AS_HERE = ("numpy", "onnxruntime")
"""Whose versions are those of this machine: the rest is as the package's own bounds have it."""
GLIBC = ("2_34", "2_31", "2_28", "2_27", "2_26", "2_24", "2_17")


class RootError(Exception):
    """The system cannot be made or run; the text says why in one line."""


@dataclass(frozen=True)
class Board:
    """A processor as QEMU names it, and as Linux describes it in files. ONNX Runtime believes the files."""

    name: str
    cpu: str
    part: str
    midr: str
    features: str


PI5 = Board(
    "Pi 5",
    "cortex-a76",
    "0xd0b",
    "0x00000000414fd0b1",
    "fp asimd evtstrm aes pmull sha1 sha2 crc32 atomics fphp asimdhp cpuid asimdrdm lrcpc dcpop asimddp",
)
PI4 = Board("Pi 4", "cortex-a72", "0xd08", "0x00000000410fd083", "fp asimd evtstrm crc32 cpuid")
CORES = 4
STARTER = "EDGEGEN_EMULATED_PYTHON"
"""The variable that names a program which starts Python in the emulator: a process in it cannot start itself again."""


def missing_tool() -> str | None:
    """Name in a sentence what this machine lacks to run a root; None if it lacks nothing."""
    if _emulator() is None:
        return "there is no qemu-aarch64: install qemu-user-static"
    if shutil.which(COMPILER) is None:
        return f"there is no {COMPILER}: install gcc-aarch64-linux-gnu"
    return None


def _emulator() -> str | None:
    return shutil.which("qemu-aarch64-static") or shutil.which("qemu-aarch64")


class Root:
    """The system in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.resolve()
        self._system = self.folder / "root"
        self._site = self.folder / "site"
        self._done = self.folder / "complete.json"

    @property
    def is_complete(self) -> bool:
        """Whether it was made, for what the package requires now."""
        return self._done.is_file() and json.loads(self._done.read_text("utf-8")) == _requirements()

    def make(self) -> None:
        """Download and unpack Debian's packages and the wheels, 110 MB, unless all is there.

        Raises:
            RootError: a tool or a package cannot be had.
        """
        if reason := missing_tool():
            raise RootError(reason)
        if self.is_complete:
            return
        for part in (self._system, self._site):
            shutil.rmtree(part, ignore_errors=True)
            part.mkdir(parents=True)
        self._unpack_packages()
        self._unpack_wheels()
        self._done.write_text(json.dumps(_requirements()), encoding="utf-8")

    def _unpack_packages(self) -> None:
        """With lists, a cache and an architecture of their own: apt takes only its sources from this machine."""
        state, cache = self.folder / "apt", self.folder / "cache"
        (state / "lists" / "partial").mkdir(parents=True, exist_ok=True)
        (cache / "archives" / "partial").mkdir(parents=True, exist_ok=True)
        (state / "status").touch()
        said = {
            "Dir::State": state,
            "Dir::State::status": state / "status",
            "Dir::Cache": cache,
            "APT::Architecture": "arm64",
            "APT::Architectures": "arm64",
            "Acquire::Languages": "none",
        }
        apt = ["apt-get", "-qq", *(word for name, value in said.items() for word in ("-o", f"{name}={value}"))]
        _run([*apt, "update"])
        _run([*apt, "-y", "--no-install-recommends", "--download-only", "install", *DEBIAN_PACKAGES])
        for package in sorted((cache / "archives").glob("*.deb")):
            _run(["dpkg", "-x", str(package), str(self._system)])

    def _unpack_wheels(self) -> None:
        platforms = [f"manylinux_{glibc}_aarch64" for glibc in GLIBC] + ["manylinux2014_aarch64"]
        python = self._python().name.removeprefix("python")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--only-binary=:all:"]
        pip += ["--target", str(self._site), "--python-version", python, "--implementation", "cp"]
        _run([*pip, *(word for name in platforms for word in ("--platform", name)), *_requirements()])

    def _python(self) -> Path:
        found = sorted((self._system / "usr" / "bin").glob("python3.*[0-9]"))
        if not found:
            raise RootError(f"Debian's packages brought no Python to {self._system}")
        return found[0]

    def take_edgegen(self) -> None:
        """Copy this checkout's runtime into the system, with kernels compiled for aarch64."""
        to = self._site / "edgegen"
        shutil.rmtree(to, ignore_errors=True)
        shutil.copytree(REPOSITORY / "edgegen", to, ignore=shutil.ignore_patterns("__pycache__", "edgegen_kernels.*"))
        build = [sys.executable, str(REPOSITORY / "kernels" / "build.py"), "--output"]
        _run([*build, str(to / "model" / "edgegen_kernels.so")], {"CC": COMPILER})

    def run(self, board: Board, task: Mapping[str, object]) -> dict[str, Any]:
        """Run ``task`` on that processor, and return the worker's answer.

        Raises:
            RootError: the emulator or the worker fails.
        """
        return json.loads(self._python_says(board, WORKER, json.dumps(task)))

    def run_commands(self, board: Board, commands: Sequence[Sequence[str]], home: Path) -> list[dict[str, Any]]:
        """Run commands of ``edgegen`` on that processor, and return ``code``, ``stdout`` and ``stderr`` of each.

        ``home``: its folder of bundles and settings.

        Raises:
            RootError: the emulator fails.
        """
        return json.loads(self._python_says(board, COMMANDS, json.dumps(commands), {"EDGEGEN_HOME": str(home)}))

    def _python_says(self, board: Board, script: Path, text: str, variables: Mapping[str, str] | None = None) -> str:
        self._describe(board)
        inside = dict(variables or {}) | {
            "PYTHONPATH": str(self._site),
            "LD_LIBRARY_PATH": str(self._system / "usr/lib/aarch64-linux-gnu"),
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        starter = self.folder / "python"
        inside[STARTER] = str(starter)
        emulator = [str(_emulator()), "-L", str(self._system)]
        emulator += [word for name, value in inside.items() for word in ("-E", f"{name}={value}")]
        python = [*emulator, str(self._python())]
        starter.write_text(f'#!/bin/sh\nexec {shlex.join(python)} "$@"\n', encoding="utf-8")
        starter.chmod(0o755)
        return _run([*python, str(script)], {"QEMU_CPU": board.cpu}, text)

    def _describe(self, board: Board) -> None:
        """Write the files of ``/proc`` and ``/sys`` that the emulated system sees instead of this machine's."""
        cpus = self._system / "sys/devices/system/cpu"
        for part in (self._system / "proc", self._system / "sys"):
            shutil.rmtree(part, ignore_errors=True)
        said = {"BogoMIPS": "108.00", "Features": board.features, "CPU implementer": "0x41", "CPU architecture": "8"}
        said |= {"CPU variant": "0x0", "CPU part": board.part, "CPU revision": "1"}
        cores = [{"processor": str(core), **said} for core in range(CORES)]
        text = "\n".join("".join(f"{name}\t: {value}\n" for name, value in core.items()) for core in cores)
        every = f"0-{CORES - 1}"
        files = {self._system / "proc/cpuinfo": text}
        files |= {cpus / name: every for name in ("possible", "present", "online")}
        for core in range(CORES):
            of = cpus / f"cpu{core}"
            files |= {of / "topology/core_id": str(core), of / "topology/physical_package_id": "0"}
            files |= {of / "topology" / name: every for name in ("core_siblings_list", "package_cpus_list")}
            files |= {of / "topology" / name: str(core) for name in ("thread_siblings_list", "core_cpus_list")}
            files[of / "regs/identification/midr_el1"] = board.midr
        for path, content in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content + "\n", encoding="utf-8")


def run_here(task: Mapping[str, object]) -> dict[str, Any]:
    """Run ``task`` on this machine, and return the worker's answer."""
    return json.loads(_run([sys.executable, str(WORKER)], {"PYTHONPATH": str(REPOSITORY)}, json.dumps(task)))


def _run(command: Sequence[str], variables: Mapping[str, str] | None = None, text: str | None = None) -> str:
    """Standard output. Raises: RootError: the command cannot be started, or fails."""
    environment = os.environ | dict(variables or {})
    try:
        done = subprocess.run(command, env=environment, input=text, capture_output=True, text=True, check=False)
    except OSError as error:
        raise RootError(f"{command[0]} cannot be started: {error.strerror}") from error
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise RootError(f"{Path(command[0]).name} fails: {last}")
    return done.stdout


def _requirements() -> list[str]:
    """Return the requirements of `pip install edgegen`, besides the package itself."""
    plain = [one for one in requires("edgegen") or () if "extra ==" not in one]
    return plain + [f"{name}=={version(name)}" for name in SAME_AS_HERE]
