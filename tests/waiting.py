"""Waiting in tests for a condition, however busy the machine is."""

import time
from collections.abc import Callable

PATIENCE_S = 300.0
"""Longer than anything takes beside any load, and shorter than the time after which a hanging test is ended."""


def until(condition: Callable[[], bool]) -> bool:
    """Whether it came true."""
    end = time.monotonic() + PATIENCE_S
    while not condition() and time.monotonic() < end:
        time.sleep(0.002)
    return condition()
