"""Mailbox: hands items from the engine's thread to a waiting thread or coroutine."""

from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

_T = TypeVar("_T")

_NAP = 1.0
"""Seconds after which a waiting thread looks up: where a lock cannot be interrupted, Ctrl-C is noticed then."""


class Mailbox(Generic[_T]):
    """A queue that any thread may put into and take from; in order, each item once."""

    def __init__(self) -> None:
        self._items = SimpleQueue[_T]()  # whose put may run in a finalizer, amid another
        self._wakes: dict[object, Callable[[], object]] = {}  # of coroutines that wait

    def put(self, item: _T) -> None:
        self._items.put(item)
        for wake in self._wakes.copy().values():
            with suppress(RuntimeError):  # the reader's event loop has been closed
                wake()

    def take(self) -> _T:
        """The next item; waits for it."""
        while True:
            try:
                return self._items.get(timeout=_NAP)
            except Empty:
                continue

    async def take_async(self) -> _T:
        """The next item; other coroutines run until it is there."""
        import asyncio  # takes longer to import than half of edgegen, and a caller with a coroutine has it already

        arrived, loop = asyncio.Event(), asyncio.get_running_loop()
        self._wakes[arrived] = lambda: loop.call_soon_threadsafe(arrived.set)
        try:
            while True:
                try:
                    return self._items.get_nowait()
                except Empty:
                    await arrived.wait()
                    arrived.clear()
        finally:
            del self._wakes[arrived]
