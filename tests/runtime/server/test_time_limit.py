"""Limits in time on a computer that sleeps: its clock may go on, but what it did not use is left."""

import asyncio
from typing import Any

import pytest
from starlette.responses import PlainTextResponse
from uvicorn.server import ServerState

from edgegen.server.http.connection import ConnectionLimits
from edgegen.server.http.options import ServerOptions
from edgegen.server.http.time_limit import AwakeTimer, time_limit
from edgegen.server.runner import server_of
from tests.runtime.server.sleepy_loop import NIGHT_S, SleepyLoop, sleep_through


class AwakeClock:
    """Seconds that the computer was awake."""

    now = 100.0

    def __call__(self) -> float:
        return self.now


async def stay_awake(clock: AwakeClock, seconds: float) -> None:
    clock.now += seconds
    await sleep_through(seconds)


def test_a_timer_counts_the_seconds_awake() -> None:
    clock, calls = AwakeClock(), list[float]()

    async def wait() -> None:
        timer = AwakeTimer(asyncio.get_running_loop(), 600, lambda: calls.append(clock.now), clock)
        await stay_awake(clock, 400)
        await sleep_through(NIGHT_S)
        await stay_awake(clock, 199)
        assert calls == []
        await stay_awake(clock, 2)
        assert calls == [701]
        timer.cancel()

    with asyncio.Runner(loop_factory=SleepyLoop) as runner:
        runner.run(wait())


def test_a_timer_that_is_cancelled_after_sleep_calls_nothing() -> None:
    clock, calls = AwakeClock(), list[str]()

    async def wait() -> None:
        timer = AwakeTimer(asyncio.get_running_loop(), 600, lambda: calls.append("called"), clock)
        await sleep_through(NIGHT_S)
        timer.cancel()
        await stay_awake(clock, 700)

    with asyncio.Runner(loop_factory=SleepyLoop) as runner:
        runner.run(wait())
    assert calls == []


@pytest.mark.parametrize("awake", [0.0, 700.0])
def test_a_limit_ends_what_took_its_seconds_awake(awake: float) -> None:
    clock = AwakeClock()

    async def wait() -> str:
        async with time_limit(600, clock):
            await stay_awake(clock, awake)
            await sleep_through(NIGHT_S)
            await asyncio.sleep(0)
        return "in time"

    with asyncio.Runner(loop_factory=SleepyLoop) as runner:
        if awake:
            with pytest.raises(TimeoutError):
                runner.run(wait())
        else:
            assert runner.run(wait()) == "in time"


class StuckTransport(asyncio.Transport):
    """A connection with as much to be read as before."""

    aborted = False

    def __init__(self) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "sockname": ("127.0.0.1", 2)})

    def get_write_buffer_size(self) -> int:
        return 1 << 20

    def is_closing(self) -> bool:
        return False

    def close(self) -> None: ...

    def abort(self) -> None:
        self.aborted = True


def test_a_client_that_slept_too_has_time_to_read_on() -> None:
    async def pause() -> bool:
        server = server_of(PlainTextResponse("hello"), ServerOptions(), ConnectionLimits())
        server.config.load()
        protocol: Any = server.config.http_protocol_class
        made, transport = protocol(server.config, ServerState(), {}), StuckTransport()
        made.connection_made(transport)
        made.pause_writing()
        await sleep_through(NIGHT_S)
        made.connection_lost(None)
        return transport.aborted

    with asyncio.Runner(loop_factory=SleepyLoop) as runner:
        assert not runner.run(pause())
