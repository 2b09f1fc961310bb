"""Pulls: the models that a server is downloading for its clients, each once, however many of them wait for it."""

import asyncio
import json
import logging
from collections import deque
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread
from typing import Any, Self, cast

from edgegen.bundle.store import BundleStore
from edgegen.server.http.api_error import ApiError
from edgegen.server.http.work import LOADING
from edgegen.server.models.pull_order import PullOrder
from edgegen.server.models.pull_process import PullProcess, PullRunner

MOST_PULLS = 16
"""Models that may be pulled, or wait to be, at a time."""

_LOG = logging.getLogger("edgegen.server")
_ERROR, _NOTE = "edgegen: error: ", "edgegen: note: "
_LAST_LINES = 20
_INVALID_ARGUMENTS = 2
"""The exit code of a command that was asked for the wrong thing."""


@dataclass(frozen=True, slots=True)
class PullProgress:
    """How far a pull is.

    Attributes:
        stage: what it does, in a few words.
        sha256: of the file that is being downloaded.
        completed: bytes of that file that are there, or parts of the stage that are done.
        total: all of them.
    """

    stage: str
    sha256: str | None = None
    completed: int | None = None
    total: int | None = None


WAITING = PullProgress("waiting until another model is pulled")


class Pull:
    """One model that is being pulled, and who waits for it.

    ``is_ending``: it has been told to end, and no client can join it.
    """

    def __init__(self, order: PullOrder) -> None:
        self.order = order
        self.followers = 0
        self.waits = False
        self.task: asyncio.Task[None] | None = None
        self._runner: PullRunner | None = None
        self._stages = list[PullProgress]()
        self._said = deque[str](maxlen=_LAST_LINES)
        self._error: ApiError | None = None
        self.is_ending = self._has_ended = False
        self._change = asyncio.Event()

    async def follow(self, seconds: float) -> AsyncGenerator[PullProgress]:
        """Every stage from the first on, as far as it was when it was over, and the present one as it goes on.

        The last is repeated after ``seconds`` without another.

        Raises:
            ApiError: the model could not be pulled.
        """
        at, shown = 0, None
        while True:
            if at < len(self._stages) and self._stages[at] is not shown:
                shown = self._stages[at]
                yield shown
            elif at + 1 < len(self._stages):
                at += 1
            elif self._has_ended:
                if self._error is not None:
                    raise self._error
                return
            else:
                try:
                    async with asyncio.timeout(seconds):
                        await self._change.wait()
                except TimeoutError:
                    if shown is not None:
                        yield shown

    def say(self, progress: PullProgress) -> None:
        """Tell all who follow; of one stage only the latest is kept."""
        if self._stages and self._stages[-1].stage == progress.stage:
            self._stages[-1] = progress
        else:
            self._stages.append(progress)
        self._changed()

    def end(self) -> None:
        """Have it end soon."""
        self.is_ending = True
        if self._runner is not None:
            self._runner.end()
        elif self.waits and self.task is not None:
            self.task.cancel()

    async def run(self, start: Callable[[PullOrder], PullRunner]) -> None:
        """Pull it, in a process that ``start`` returns."""
        if self.is_ending:
            return
        runner = self._runner = await LOADING.run(start, self.order)
        if self.is_ending:  # meanwhile
            runner.end()
        arrived, loop = asyncio.Queue[str | int](), asyncio.get_running_loop()

        def listen() -> None:
            with suppress(RuntimeError):  # the server has ended
                for line in runner.lines():
                    loop.call_soon_threadsafe(arrived.put_nowait, line)
                loop.call_soon_threadsafe(arrived.put_nowait, runner.wait())
            runner.wait()

        Thread(target=listen, name="edgegen-pull", daemon=True).start()
        while isinstance(item := await arrived.get(), str):
            self._hear(item)
        if item != 0:
            raise _stopped() if self.is_ending else self._refusal(item)

    def finish(self, error: ApiError | None) -> None:
        """It is over."""
        self._error, self._has_ended, self._runner = error, True, None
        self._changed()

    def close(self) -> None:
        """End its process, and wait until it has ended."""
        self.end()
        if (runner := self._runner) is not None:
            runner.wait()

    def _hear(self, line: str) -> None:
        event: Any = None
        if line.startswith("{"):
            with suppress(ValueError):
                event = json.loads(line)
        match event:
            case {"stage": str(stage)}:
                told = cast(dict[str, Any], event)
                self.say(PullProgress(stage, *(told.get(name) for name in ("sha256", "completed", "total"))))
            case _:
                self._said.append(line)

    def _refusal(self, code: int) -> ApiError:
        """The error of a process that ended with ``code``."""
        errors = [line.removeprefix(_ERROR) for line in self._said if line.startswith(_ERROR)]
        notes = [line.removeprefix(_NOTE) for line in self._said if line.startswith(_NOTE)]
        if not errors:
            words = "\n".join(self._said)
            _LOG.error("the process that pulled %s ended with code %d and said: %s", self.order.source, code, words)
            said = f"the process that pulled {self.order.source!r} ended with code {code}; the server's log says more"
        else:
            said = _without_places("; ".join([errors[-1].rstrip("."), *notes]), self.order.model)
            if code == _INVALID_ARGUMENTS:
                return ApiError(400, f"{said}.", param="model", code="pull_failed")
        return ApiError(500, f"{said}.", kind="server_error", param="model", code="pull_failed")

    def _changed(self) -> None:
        self._change.set()
        self._change = asyncio.Event()


class Pulls:
    """Pulls one model at a time: others wait. Used by one event loop only, but for :meth:`close`.

    ``with Pulls() as pulls:`` ends at the end what runs.
    """

    def __init__(self, start: Callable[[PullOrder], PullRunner] = PullProcess) -> None:
        self._start = start
        self._pulls = dict[str, Pull]()
        self._one_at_a_time = asyncio.Lock()
        self._closed = False

    @property
    def models(self) -> set[str]:
        """The bundles that are being pulled."""
        return {*self._pulls}

    @asynccontextmanager
    async def joined(self, order: PullOrder) -> AsyncGenerator[Pull]:
        """The pull of that model, which is begun unless it runs; it is ended when no client waits for it any more.

        Raises:
            ApiError: too many models are pulled already, or the server is being stopped.
        """
        while (pull := self._pulls.get(order.model)) is not None and pull.is_ending:
            assert pull.task is not None
            await asyncio.wait([pull.task])
        if self._closed:
            raise _stopped()
        if pull is None:
            if len(self._pulls) >= MOST_PULLS:
                said = f"{len(self._pulls)} models are pulled or wait, which is the most: try again later."
                headers = {"Retry-After": "60"}
                raise ApiError(503, said, kind="server_error", code="too_many_pulls", headers=headers)
            pull = self._pulls[order.model] = Pull(order)
            pull.task = asyncio.create_task(self._run(pull))
        pull.followers += 1
        try:
            yield pull
        finally:
            pull.followers -= 1
            if not pull.followers:
                pull.end()

    def end(self) -> None:
        """End what runs, and begin nothing more."""
        self._closed = True
        for pull in self._pulls.values():
            pull.end()

    def close(self) -> None:
        """:meth:`end`, when the event loop may have stopped; returns when no process is left."""
        self._closed = True
        for pull in self._pulls.values():
            pull.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    async def _run(self, pull: Pull) -> None:
        error: ApiError | None = _stopped()
        try:
            if self._one_at_a_time.locked():
                pull.waits = True
                pull.say(WAITING)
            async with self._one_at_a_time:
                pull.waits = False
                await pull.run(self._start)
            error = None
        except Exception as found:
            error = _stopped() if self._closed else ApiError.of(found)
        finally:
            del self._pulls[pull.order.model]
            pull.finish(error)


def _without_places(text: str, model: str) -> str:
    """``text`` without the places of the server's files."""
    store = BundleStore()
    for folder, name in ((store.path(model), repr(model)), (store.root, "the store"), (Path.home(), "~")):
        text = text.replace(str(folder), name)
    return text


def _stopped() -> ApiError:
    """Error of a pull that is ended: when the server is, or when no client waits for it."""
    said = "the server is being stopped: pull again later, which goes on where this ended."
    return ApiError(503, said, kind="server_error", code="server_stopped", headers={"Retry-After": "60"})
