"""Mailbox: hands items from the engine's thread to a waiting thread or coroutine."""

import os
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Generic, TypeVar

from edgegen.errors import UsageError

_T = TypeVar("_T")

_NAP = 1.0
"""Seconds after which a waiting thread looks up: then it notices a fork, and Ctrl-C where locks wait on."""


class Mailbox(Generic[_T]):
    """A queue that any thread may put into and take from; in order, each item once."""

    def __init__(self) -> None:
        self._items = SimpleQueue[_T]()  # whose put may run in a finalizer, amid another
        self._wakes: dict[object, Callable[[], object]] = {}  # of coroutines that wait
        self._process = os.getpid()

    def put(self, item: _T) -> None:
        self._items.put(item)
        for wake in self._wakes.copy().values():
            with suppress(RuntimeError):  # the reader's event loop has been closed
                wake()

    def take(self) -> _T:
        """The next item; waits for it.

        Raises:
            UsageError: this process was forked from the one whose threads put items into this.
        """
        while True:
            try:
                return self._items.get(timeout=_NAP)
            except Empty:
                if os.getpid() != self._process:
                    raise UsageError(
                        "this process was forked while the text was generated: read it in the process that began it."
                    ) from None

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
