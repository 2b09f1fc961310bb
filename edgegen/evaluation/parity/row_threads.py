"""A function over the rows of a matrix on all cores."""

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from edgegen.system import physical_cores

Result = TypeVar("Result")

_NARROW = 4096
"""Floats of a row up to which handing it to a thread takes longer than its sums and exponentials."""


class RowThreads:
    """Threads for the rows of matrices, one per physical core; narrow rows are computed in the caller's thread.

    NumPy frees the interpreter while it computes a row. Results come in the order of the rows, and with the same bits.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(physical_cores())  # it starts none before they are needed

    def map(
        self, function: Callable[..., Result], rows: NDArray[np.float32], *columns: Iterable[Any]
    ) -> Iterator[Result]:
        """``function`` of each of ``rows`` [n, width], and of what each of ``columns`` has for it."""
        if rows.shape[-1] > _NARROW:
            return self._threads.map(function, rows, *columns)
        return (function(*values) for values in zip(rows, *columns, strict=False))

    def close(self) -> None:
        """Wait for what runs, and end the threads."""
        self._threads.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
