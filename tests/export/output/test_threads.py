"""Work on all cores, and arrays in scratch files."""

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edgegen_export.scratch import Scratch
from edgegen_export.threads import in_threads


def test_results_come_in_the_order_of_the_items() -> None:
    second_is_done = threading.Event()

    def square(x: int) -> int:
        if x == 0:
            assert second_is_done.wait(10)
        else:
            second_is_done.set()
        return x * x

    assert list(in_threads(square, range(9), 2)) == [x * x for x in range(9)]


def test_items_are_taken_a_few_ahead_only() -> None:
    taken = list[int]()

    def items() -> Iterator[int]:
        for x in range(50):
            taken.append(x)
            yield x

    results = in_threads(lambda x: x, items(), 2)
    assert next(results) == 0
    assert len(taken) == 3


def test_an_error_of_a_thread_is_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        list(in_threads(lambda x: 1 / x, [1, 0, 2], 2))


def test_scratch_arrays_are_counted_and_leave_no_file(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    array = scratch.empty((3, 5))
    assert not array.any()
    copy = scratch.kept(np.full((2, 2), 7, np.float32))
    np.testing.assert_array_equal(copy, 7)
    assert scratch.empty((0, 4)).shape == (0, 4)
    assert scratch.nbytes == 4 * (3 * 5 + 2 * 2)
    assert not list(tmp_path.iterdir())
