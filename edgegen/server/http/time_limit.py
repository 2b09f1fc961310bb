"""time_limit() and AwakeTimer: a server's limits in time, which a laptop that sleeps amid a stream does not use up."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from edgegen.system import Deadline, awake_seconds

Clock = Callable[[], float]


class AwakeTimer:
    """Calls a function after the given number of seconds in which the computer is awake.

    The clock of an event loop goes on in sleep on Windows, so that all its timers are due when the computer wakes up.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, seconds: float, call: Callable[[], object], clock: Clock = awake_seconds
    ) -> None:
        self._loop = loop
        self._call = call
        self._deadline = Deadline.after(seconds, clock)
        self._handle = loop.call_later(seconds, self._check)

    def cancel(self) -> None:
        self._handle.cancel()

    def _check(self) -> None:
        if (left := self._deadline.left) > 0:
            self._handle = self._loop.call_later(left, self._check)
        else:
            self._call()


@asynccontextmanager
async def time_limit(seconds: float, clock: Clock = awake_seconds) -> AsyncGenerator[None]:
    """As ``asyncio.timeout``, of seconds in which the computer is awake.

    Raises:
        TimeoutError: they are over.
    """
    loop = asyncio.get_running_loop()
    async with asyncio.timeout(None) as limit:
        timer = AwakeTimer(loop, seconds, lambda: limit.reschedule(loop.time()), clock)
        try:
            yield
        finally:
            timer.cancel()
