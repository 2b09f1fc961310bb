"""The clock that stands still while the computer sleeps."""

import struct
import sys
import time
from collections.abc import Iterator

import pytest

from edgegen.system import Deadline, awake_seconds
from edgegen.system.source import LOCAL
from tests.runtime.system.recorded import Recorded


def test_windows_tells_the_seconds_it_was_awake() -> None:
    """In units of 100 ns; its other clocks go on in sleep."""
    machine = Recorded("win32", calls={"QueryUnbiasedInterruptTime": struct.pack("<Q", 36_000_000_000 + 5_000_000)})
    assert awake_seconds(machine) == 3600.5


@pytest.mark.parametrize("machine", [Recorded(), Recorded("darwin"), Recorded("win32")], ids=lambda one: one.system)
def test_elsewhere_it_is_the_monotonic_clock(machine: Recorded) -> None:
    before = time.monotonic()
    assert before <= awake_seconds(machine) <= time.monotonic()


def test_the_clock_of_this_machine_goes_on() -> None:
    end = time.monotonic() + 300
    first = awake_seconds()
    while awake_seconds() == first:
        assert time.monotonic() < end


@pytest.mark.skipif(sys.platform != "win32", reason="Windows alone has a call of its own for this")
def test_windows_itself_is_asked() -> None:
    told = LOCAL.call("QueryUnbiasedInterruptTime")
    assert told is not None
    assert 0 < struct.unpack("<Q", told)[0] / 10_000_000 <= awake_seconds()


def test_a_deadline_passes_when_its_seconds_are_over() -> None:
    times: Iterator[float] = iter([10.0, 10.5, 11.9, 12.0, 12.5])
    deadline = Deadline.after(2, lambda: next(times))
    assert deadline.at == 12.0
    assert deadline.left == 1.5
    assert [deadline.passed for _ in range(3)] == [False, True, True]
