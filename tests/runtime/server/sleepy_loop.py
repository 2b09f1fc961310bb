"""SleepyLoop: an event loop on a computer that sleeps, whose clock goes on meanwhile, as it does on Windows."""

import asyncio

NIGHT_S = 8 * 3600.0


class SleepyLoop(asyncio.SelectorEventLoop):
    slept = 0.0

    def time(self) -> float:
        return super().time() + self.slept


async def sleep_through(seconds: float) -> None:
    """Returns when all that was due in these ``seconds`` has been called."""
    loop, woken = asyncio.get_running_loop(), asyncio.Event()
    assert isinstance(loop, SleepyLoop)
    loop.call_later(seconds, woken.set)
    loop.slept += seconds
    await woken.wait()
