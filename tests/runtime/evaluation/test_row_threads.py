"""RowThreads: the rows of a matrix in order, on threads where they are wide."""

import threading

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen.evaluation.parity.row_threads import RowThreads

NARROW, WIDE = 16, 5000

Row = NDArray[np.float32]


def scaled(row: Row, factor: int) -> float:
    return float(row[0]) * factor


def thread_of(_row: Row) -> int:
    return threading.get_ident()


def failing(_row: Row) -> float:
    raise ZeroDivisionError


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_results_come_in_the_order_of_the_rows(width: int) -> None:
    rows = np.arange(6 * width, dtype=np.float32).reshape(6, width)
    with RowThreads() as threads:
        found = list(threads.map(scaled, rows, range(6)))
    assert found == [row * width * row for row in range(6)]


@pytest.mark.parametrize(("width", "is_own"), [(NARROW, True), (WIDE, False)])
def test_narrow_rows_are_computed_in_the_callers_thread(width: int, is_own: bool) -> None:
    with RowThreads() as threads:
        found = set(threads.map(thread_of, np.zeros((3, width), np.float32)))
    assert (found == {threading.get_ident()}) is is_own


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_an_error_of_a_row_is_raised(width: int) -> None:
    with RowThreads() as threads, pytest.raises(ZeroDivisionError):
        list(threads.map(failing, np.zeros((3, width), np.float32)))
