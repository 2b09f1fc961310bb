"""in_threads(): a function over many items on all cores, its results in their order whatever thread is faster."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from edgegen.system import physical_cores

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_threads(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int | None = None
) -> Generator[Result]:
    """``function`` of each of ``items``, in their order; items are taken only a few ahead, for they may be large.

    ``workers``: threads, by default one per physical core. NumPy frees the interpreter while it computes.
    """
    count = workers or physical_cores()
    with ThreadPoolExecutor(count) as threads:
        pending = deque[Future[Result]]()
        for item in items:
            pending.append(threads.submit(function, item))
            if len(pending) > count:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()
