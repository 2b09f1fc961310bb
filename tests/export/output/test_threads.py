"""Work on all cores, and arrays in scratch files."""

import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from edgegen_export.files import threads
from edgegen_export.files.scratch import Scratch
from edgegen_export.files.threads import Follower, in_threads
from tests.systems import WINDOWS


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


@pytest.mark.parametrize("workers", [1, 3])
def test_products_are_the_same_whatever_the_number_of_threads(workers: int) -> None:
    x = np.random.default_rng(0).standard_normal((300, 64), np.float32)

    def product(i: int) -> bytes:
        return (x[i:].T @ x[i:]).tobytes()

    expected = list(in_threads(product, range(6), 2))
    assert list(in_threads(product, range(6), workers)) == expected


def test_products_take_threads_again_behind_the_last_user() -> None:
    blas = threads.openblas()
    if blas is None:
        pytest.skip("NumPy comes with another BLAS than OpenBLAS here")
    before = blas.scipy_openblas_get_num_threads64_()
    blas.scipy_openblas_set_num_threads64_(2)
    try:

        def seen(_: int) -> int:
            assert list(in_threads(lambda x: x, [1], 1)) == [1]  # one user inside another
            return int(blas.scipy_openblas_get_num_threads64_())

        assert list(in_threads(seen, range(3), 2)) == [1, 1, 1]
        unfinished = in_threads(seen, range(3), 1)
        next(unfinished)
        unfinished.close()
        assert blas.scipy_openblas_get_num_threads64_() == 2
    finally:
        blas.scipy_openblas_set_num_threads64_(before)


def test_scratch_arrays_are_counted_and_leave_no_file(tmp_path: Path) -> None:
    scratch = Scratch(tmp_path)
    array = scratch.empty((3, 5))
    assert not array.any()
    copy = scratch.kept(np.full((2, 2), 7, np.float32))
    np.testing.assert_array_equal(copy, 7)
    assert scratch.empty((0, 4)).shape == (0, 4)
    assert scratch.nbytes == 4 * (3 * 5 + 2 * 2)
    assert WINDOWS or not list(tmp_path.iterdir())
    del array, copy
    assert not list(tmp_path.iterdir())


def test_a_follower_calls_beside_its_caller_and_one_after_the_other() -> None:
    may_end, calls, follower = threading.Event(), list[int](), Follower()

    def first() -> None:
        assert may_end.wait(60)
        calls.append(1)

    follower.start(first)
    may_end.set()  # so that it cannot have run in start()
    follower.start(lambda: calls.append(2))
    follower.wait()
    follower.wait()
    assert calls == [1, 2]


def test_a_follower_raises_once_what_the_call_before_raised() -> None:
    def broken() -> None:
        raise OSError("no room")

    calls, follower = list[int](), Follower()
    follower.start(broken)
    with pytest.raises(OSError, match="no room"):
        follower.start(lambda: calls.append(1))
    follower.start(broken)
    with pytest.raises(OSError, match="no room"):
        follower.wait()
    follower.wait()
    assert calls == []
