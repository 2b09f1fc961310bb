"""Connections with time limits: for headers, for a body that no endpoint reads, and for a client that does not read."""

import asyncio
from dataclasses import dataclass
from typing import Any, ClassVar, cast

import h11
from uvicorn import Config
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle
from uvicorn.server import ServerState

from edgegen.server.http.open_connections import OpenConnections
from edgegen.server.http.time_limit import AwakeTimer


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """
    Attributes:
        header_seconds: for the headers of a request, from the connection or from their first byte.
        idle_seconds: between two requests; also for the rest of a body whose request has been answered.
        write_seconds: for a client that takes nothing of an answer although more than 64 KiB of it wait.
        connections: at a time; more are refused with 503.
    """

    header_seconds: float = 10.0
    idle_seconds: int = 15
    write_seconds: float = 30.0
    connections: int = 1000


class TimedProtocol(H11Protocol):
    """uvicorn's HTTP/1.1, which limits nothing but the time between two requests."""

    limits: ClassVar = ConnectionLimits()
    open_ones: ClassVar = OpenConnections(None)

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self._phase: str | None = None
        self._read_timer: AwakeTimer | None = None
        self._write_timer: AwakeTimer | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:
        super().connection_made(transport)
        self._enter_phase()
        self.open_ones.enter(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_timers()
        self.open_ones.leave(self)
        super().connection_lost(exc)
        self._end_timers()  # it tells the application and resumes writing

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._enter_phase()
        self._tell_whether_it_waits()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._tell_whether_it_waits()
        if self.conn.their_state is not h11.IDLE:  # there uvicorn's own timer runs, until the next byte
            self._enter_phase()

    def send_400_response(self, msg: str) -> None:
        """The rest of a request is malformed: its client is as good as gone, and nothing of it is logged."""
        cycle = cast("RequestResponseCycle | None", self.cycle)  # None before the first request
        if cycle is not None and not cycle.response_complete:
            cycle.disconnected = True
            cycle.message_event.set()
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:  # it has its answer, or the beginning of one
            self.transport.close()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._expect_reading()  # closing waits for what has been written

    def pause_writing(self) -> None:
        super().pause_writing()
        self._expect_reading()

    def resume_writing(self) -> None:
        super().resume_writing()
        if self._write_timer is not None and not self.transport.is_closing():
            self._write_timer.cancel()
            self._write_timer = None

    def abort(self) -> None:
        """End the connection now."""
        self.transport.abort()

    def _tell_whether_it_waits(self) -> None:
        if self.conn.their_state is h11.IDLE:
            self.open_ones.wait(self)
        else:
            self.open_ones.work(self)

    def _enter_phase(self) -> None:
        """Each phase has one timer, which more data does not prolong."""
        if self.transport.is_closing():
            self._expect_reading()
        phase, seconds = None, 0.0  # the application limits the rest
        if self.conn.their_state is h11.IDLE:
            phase, seconds = "headers", self.limits.header_seconds
        elif self.conn.their_state is h11.SEND_BODY and self.conn.our_state is h11.DONE:
            phase, seconds = "unread body", self.limits.idle_seconds
        if phase == self._phase:
            return
        self._phase = phase
        if self._read_timer is not None:
            self._read_timer.cancel()
        self._read_timer = AwakeTimer(self.loop, seconds, self.transport.abort) if phase else None

    def _expect_reading(self) -> None:
        if self._write_timer is None:
            self._check_reading(None)

    def _check_reading(self, waiting_before: int | None) -> None:
        """Nothing is added to what waits while writing is paused, so that it shrinks with every byte that is read."""
        waiting = self.transport.get_write_buffer_size()
        if waiting_before is not None and waiting >= waiting_before:
            self.transport.abort()
        else:
            self._write_timer = AwakeTimer(self.loop, self.limits.write_seconds, lambda: self._check_reading(waiting))

    def _end_timers(self) -> None:
        for timer in (self._read_timer, self._write_timer):
            if timer is not None:
                timer.cancel()
        self._read_timer = self._write_timer = None


def timed_protocol(limits: ConnectionLimits, open_ones: OpenConnections) -> type[asyncio.Protocol]:
    """``TimedProtocol`` with other limits, counted among ``open_ones``."""
    return type("LimitedProtocol", (TimedProtocol,), {"limits": limits, "open_ones": open_ones})
