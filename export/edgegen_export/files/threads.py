"""in_threads(): a function over many items on all cores, its results in their order whatever thread is faster."""

import ctypes
import importlib.util
from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, nullcontext, suppress
from functools import cache
from itertools import chain, islice
from threading import Lock
from typing import Any, Self, TypeVar

from edgegen.system import physical_cores

Item = TypeVar("Item")
Result = TypeVar("Result")


def in_threads(
    function: Callable[[Item], Result], items: Iterable[Item], workers: int | None = None
) -> Generator[Result]:
    """``function`` of each of ``items``, in their order; items are taken only a few ahead, for they may be large.

    ``workers``: threads, by default one per physical core. NumPy frees the interpreter while it computes, and its
    matrix products take no threads of their own meanwhile.
    """
    count = workers or physical_cores()
    items = iter(items)
    few = [*islice(items, 2)]
    if count == 1 or len(few) == 1:  # a thread costs more than a small matrix
        with one_thread_per_product():
            yield from map(function, chain(few, items))
        return
    with one_thread_per_product(), ThreadPoolExecutor(count) as threads:
        pending = deque[Future[Result]]()
        for item in chain(few, items):
            pending.append(threads.submit(function, item))
            if len(pending) > count:
                yield pending.popleft().result()
        while pending:
            yield pending.popleft().result()


class Follower:
    """One call at a time in another thread, while its caller goes on to prepare the next one.

    A context manager: after it, nothing is called any more. It raises what the last call raised, unless there is an
    exception already.
    """

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(1)
        self._pending: Future[object] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with suppress(Exception) if kind else nullcontext():
            self.wait()
        self._threads.shutdown()

    def start(self, function: Callable[[], object]) -> None:
        """Call ``function`` after the call before it; raises what that one raised."""
        self.wait()
        self._pending = self._threads.submit(function)

    def wait(self) -> None:
        """Wait until nothing is called any more; raises what the last call raised."""
        pending, self._pending = self._pending, None
        if pending is not None:
            pending.result()


_lock, _users, _before = Lock(), 0, 0


@contextmanager
def one_thread_per_product() -> Generator[None]:
    """OpenBLAS, where NumPy comes with it, limited to the thread that calls it: its own threads would wait for each
    other, spin after each product, and how it is shared among them may change its last bits."""
    global _users, _before
    if (blas := openblas()) is None:
        yield
        return
    with _lock:
        if not _users:
            _before = int(blas.scipy_openblas_get_num_threads64_())
            blas.scipy_openblas_set_num_threads64_(1)
        _users += 1
    try:
        yield
    finally:
        with _lock:
            _users -= 1
            if not _users:
                blas.scipy_openblas_set_num_threads64_(_before)


@cache
def openblas() -> Any:
    """The library as it is loaded with NumPy's linear algebra; None where that is another one."""
    spec = importlib.util.find_spec("numpy.linalg._umath_linalg")
    if spec is None or spec.origin is None:
        return None
    library = ctypes.CDLL(spec.origin)
    return library if hasattr(library, "scipy_openblas_set_num_threads64_") else None
