"""Source: where facts of the machine come from, files and calls of the operating system, so that tests can record them.

:class:`Local` asks this machine. Whatever reads a fact takes a source, so every rule about Windows, macOS, a Raspberry
Pi or a container is tested on any of them.
"""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

_SECONDS = 10
"""That a program may take to tell something."""

_CREATE_NO_WINDOW = 0x08000000
"""Of CreateProcess on Windows."""


class Source(Protocol):
    """Source of facts about one machine.

    ``system`` is ``sys.platform``: ``linux``, ``win32`` or ``darwin``. ``machine`` is the architecture, as the system
    writes it: ``x86_64``, ``aarch64``, ``arm64``, ``AMD64``.
    """

    @property
    def system(self) -> str: ...

    @property
    def machine(self) -> str: ...

    def read(self, path: str) -> str | None:
        """The text of a file below ``/proc`` or ``/sys``; None where it is not there, or cannot be read."""
        ...

    def names(self, folder: str) -> list[str]:
        """The sorted names in a folder below ``/proc`` or ``/sys``; none where it is not there."""
        ...

    def allowed_cpus(self) -> frozenset[int]:
        """The logical CPUs that this process may run on."""
        ...

    def call(self, question: str) -> bytes | None:
        """Return the result of a system call, as the system has it; None where there is no such call, or it fails.

        Windows: a function of its API, a class of what a job tells, or a registry value, ``HKLM\\KEY\\VALUE``. macOS:
        the name of a ``sysctl``, or ``host_statistics64`` and ``proc_pid_rusage``. Everywhere: ``nvidia-smi`` and what
        to ask it for.
        """
        ...


_WITHOUT_PROC = ("win32", "darwin")
"""Systems without ``/proc`` and ``/sys``: on Windows, anyone may make folders of these names on the current drive."""


class Local:
    """The machine that this process runs on."""

    def __init__(self, system: str = sys.platform, environment: Mapping[str, str] = os.environ) -> None:
        self.system = system
        self.machine = _machine(system, environment)

    def read(self, path: str) -> str | None:
        if self.system in _WITHOUT_PROC:
            return None
        try:
            return Path(path).read_text("utf-8", errors="replace")
        except (OSError, ValueError):
            return None

    def names(self, folder: str) -> list[str]:
        if self.system in _WITHOUT_PROC:
            return []
        try:
            return sorted(entry.name for entry in Path(folder).iterdir())
        except OSError:
            return []

    def allowed_cpus(self) -> frozenset[int]:
        if hasattr(os, "sched_getaffinity"):
            return frozenset(os.sched_getaffinity(0))
        return frozenset(range(os.cpu_count() or 1))

    def call(self, question: str) -> bytes | None:
        if question.startswith("nvidia-smi "):
            return _nvidia_smi(question.removeprefix("nvidia-smi "), self)
        if sys.platform == "win32":
            from edgegen.system.windows_calls import call_windows

            return call_windows(question)
        if sys.platform == "darwin":
            from edgegen.system.macos_calls import call_macos

            return call_macos(question)
        return None


def _machine(system: str, environment: Mapping[str, str]) -> str:
    """The architecture. ``platform.machine()`` would ask Windows for the host's name, through a socket library."""
    if system == "win32" or sys.platform == "win32":  # which has no uname
        # The first is there in a 32-bit process only, and names the system's architecture.
        return environment.get("PROCESSOR_ARCHITEW6432") or environment.get("PROCESSOR_ARCHITECTURE", "")
    return os.uname().machine


def _nvidia_smi(question: str, source: Source) -> bytes | None:
    """A line for each GPU."""
    import shutil  # these two take as long to import as all else of this wing
    import subprocess

    if (program := shutil.which("nvidia-smi")) is None:
        return None
    command = [program, f"--query-gpu={question}", "--format=csv,noheader,nounits"]
    try:
        done = subprocess.run(
            command, capture_output=True, timeout=_SECONDS, check=False, creationflags=creation_flags(source)
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


LOCAL = Local()


def is_frozen() -> bool:
    """Whether this is an app that carries its own Python, as PyInstaller and its like make one."""
    return bool(getattr(sys, "frozen", False))


def creation_flags(source: Source = LOCAL) -> int:
    """The ``creationflags`` of a child process; it opens no console window where this one, of ``pythonw``, has none.

    With a console the child shares it: Ctrl-C reaches both. 0 on systems other than Windows.
    """
    if source.system != "win32" or source.call("GetConsoleWindow"):
        return 0
    return _CREATE_NO_WINDOW
