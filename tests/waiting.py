"""Waiting in tests, however busy the machine is: for a condition, and for a process to have done some work."""

import os
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

PATIENCE_S = 300.0
"""Longer than anything takes beside any load, and shorter than the time after which a hanging test is ended."""


def until(condition: Callable[[], bool]) -> bool:
    """Whether it came true."""
    end = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < end:
        time.sleep(0.002)
    return condition()


def until_it_used(process: subprocess.Popen[bytes], cpu_seconds: float) -> None:
    """Wait until ``process`` has had so much CPU time, or has ended; where the system does not tell, as long."""
    stat, ticks = Path(f"/proc/{process.pid}/stat"), os.sysconf("SC_CLK_TCK")
    if not stat.exists():
        time.sleep(cpu_seconds)
        return

    def used() -> float:
        return sum(map(int, stat.read_text().rpartition(")")[2].split()[11:13])) / ticks

    assert until(lambda: process.poll() is not None or used() >= cpu_seconds)
