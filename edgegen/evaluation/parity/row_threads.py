"""A function over the rows of a matrix on all cores."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from edgegen.system import physical_cores

Result = TypeVar("Result")

_NARROW = 4096
"""Floats of a row up to which handing it to a thread takes longer than its sums and exponentials."""

_TOGETHER = 1 << 16
"""Floats of narrow rows that are computed at once: each call of NumPy takes longer than a narrow row."""


class RowThreads:
    """Threads for the rows of matrices, one per physical core; narrow rows are computed in the caller's thread, many at
    once.

    NumPy frees the interpreter while it computes a row. Results come in the order of the rows, and with the same bits.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(physical_cores())  # it starts none before they are needed

    def map(
        self,
        function: Callable[..., Iterable[Result]],
        rows: NDArray[np.float32],
        *columns: Sequence[Any] | NDArray[Any],
    ) -> Iterator[Result]:
        """A result for each of ``rows`` [n, width]: those of ``function`` for some of them, [k, width], and for what
        each of ``columns`` has there."""
        wide = rows.shape[-1] > _NARROW
        together = 1 if wide else _TOGETHER // max(1, rows.shape[-1])
        parts = [slice(at, at + together) for at in range(0, len(rows), together)]
        values = ([column[part] for part in parts] for column in (rows, *columns))
        return chain.from_iterable((self._threads.map if wide else map)(function, *values))

    def close(self) -> None:
        """Wait for what runs, and end the threads."""
        self._threads.shutdown()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
