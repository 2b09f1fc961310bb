"""Deadline: the end of a time that counts only while the computer is awake.

Python's clocks stand still on Linux and macOS while the computer sleeps. On Windows they go on: whatever a laptop did
when its lid was closed would be out of time when it is opened.
"""

import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Self

from edgegen.system.source import LOCAL, Source

_TICKS = 10_000_000
"""Of Windows' interrupt time, a second."""


def awake_seconds(source: Source = LOCAL) -> float:
    """Seconds, from any beginning, without those in which the computer slept; right to 16 ms on Windows."""
    told = source.call("QueryUnbiasedInterruptTime") if source.system == "win32" else None
    return time.monotonic() if told is None else struct.unpack("<Q", told)[0] / _TICKS


@dataclass(frozen=True, slots=True)
class Deadline:
    """
    Attributes:
        at: when it passes, as ``clock`` tells it in seconds.
    """

    at: float
    clock: Callable[[], float] = awake_seconds

    @classmethod
    def after(cls, seconds: float, clock: Callable[[], float] = awake_seconds) -> Self:
        """The deadline ``seconds`` from now."""
        return cls(clock() + seconds, clock)

    @property
    def left(self) -> float:
        """Seconds until then; 0 or less once it has passed."""
        return self.at - self.clock()

    @property
    def passed(self) -> bool:
        return self.left <= 0
