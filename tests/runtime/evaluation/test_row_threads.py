"""RowThreads: the rows of a matrix in order, on threads where they are wide."""

import threading

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen.evaluation.parity.row_threads import RowThreads

NARROW, WIDE = 16, 5000

Rows = NDArray[np.float32]


def scaled(rows: Rows, factors: range) -> list[float]:
    return [float(row[0]) * factor for row, factor in zip(rows, factors, strict=True)]


def thread_of(rows: Rows) -> list[int]:
    return [threading.get_ident()] * len(rows)


def failing(_rows: Rows) -> list[float]:
    raise ZeroDivisionError


@pytest.mark.parametrize(
    ("count", "width"), [(6, NARROW), (6, WIDE), (40, 4096), (5000, NARROW), (0, NARROW), (0, WIDE)]
)
def test_results_come_in_the_order_of_the_rows(count: int, width: int) -> None:
    rows = np.arange(count * width, dtype=np.float32).reshape(count, width)
    with RowThreads() as threads:
        found = list(threads.map(scaled, rows, range(count)))
    assert found == [row * width * row for row in range(count)]


@pytest.mark.parametrize(("count", "width", "most"), [(5000, NARROW, 4096), (40, 4096, 16), (3, WIDE, 1)])
def test_narrow_rows_are_computed_together(count: int, width: int, most: int) -> None:
    def counted(rows: Rows) -> list[int]:
        return [len(rows)] * len(rows)

    with RowThreads() as threads:
        assert max(threads.map(counted, np.zeros((count, width), np.float32))) == most


@pytest.mark.parametrize(("width", "is_own"), [(NARROW, True), (WIDE, False)])
def test_narrow_rows_are_computed_in_the_callers_thread(width: int, is_own: bool) -> None:
    with RowThreads() as threads:
        found = set(threads.map(thread_of, np.zeros((3, width), np.float32)))
    assert (found == {threading.get_ident()}) is is_own


@pytest.mark.parametrize("width", [NARROW, WIDE])
def test_an_error_of_a_row_is_raised(width: int) -> None:
    with RowThreads() as threads, pytest.raises(ZeroDivisionError):
        list(threads.map(failing, np.zeros((3, width), np.float32)))
