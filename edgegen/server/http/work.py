"""WorkThreads: what blocks runs in a bounded number of threads for each kind of work, and keeps its request's place.

A thread cannot be interrupted. So work whose client has left goes on, and until it has ended it counts as its request
did: clients that leave cannot make the server do more at once than clients that stay. The threads are daemons, so that
none keeps the process from ending.
"""

import asyncio
import contextvars
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from threading import Lock, Thread
from time import thread_time
from traceback import clear_frames
from typing import Any, ParamSpec, TypeVar, cast

from edgegen.system import trim_memory

_LONG_SECONDS = 0.1

P = ParamSpec("P")
T = TypeVar("T")

_PLACE = contextvars.ContextVar["Place | None"]("place", default=None)


class Place:
    """A request's place among those that run or wait; free when the request and all of its work have ended.

    Used by one event loop only.

    Attributes:
        is_long: the request's body is long, so that all that is done with it in Python may take long.
    """

    is_long = False

    def __init__(self, free: Callable[[], object]) -> None:
        self._free = free
        self._holders = 1
        self._outer = _PLACE.set(self)

    def hold(self) -> None:
        """Keep the place until one more :meth:`release`."""
        self._holders += 1

    def release(self) -> None:
        """Let go of it once."""
        self._holders -= 1
        if not self._holders:
            self._free()

    def leave(self) -> None:
        """The request has ended: work that begins now has another place, or none."""
        _PLACE.reset(self._outer)
        self.release()


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    function: Callable[[], Any]
    loop: asyncio.AbstractEventLoop
    result: asyncio.Future[Any]
    place: Place | None

    def run(self) -> None:
        """Run it, unless no caller waits for it any more, and hand over the result."""
        value, error = None, None
        if not self.result.cancelled():
            try:
                value = self.function()
            except BaseException as found:  # a panic of a library is no Exception
                _let_go(found)
                error = found if isinstance(found, Exception) else RuntimeError(f"{type(found).__name__}: {found}")
        with suppress(RuntimeError):  # the event loop has ended
            self.loop.call_soon_threadsafe(self._end, value, error)
        del error  # its traceback has this frame

    def _end(self, value: Any, error: Exception | None) -> None:
        if self.place is not None:
            self.place.release()
        if self.result.cancelled():
            return
        if error is None:
            self.result.set_result(value)
        else:
            self.result.set_exception(error)


def _let_go(error: BaseException | None) -> None:
    """Forget what the functions held that have raised ``error``, such as a million ids: errors live on for long."""
    while error is not None:
        clear_frames(error.__traceback__)
        error = error.__context__


def note_long_body() -> None:
    """The request that runs has a long body."""
    place = _PLACE.get()
    if place is not None:
        place.is_long = True


class WorkThreads:
    """At most ``most`` threads for one kind of work; more of it waits. They start when they are needed, and stay.

    ``of_long``: the threads that do this work of requests with long bodies, so that it does not fill these.
    """

    def __init__(self, kind: str, most: int, of_long: "WorkThreads | None" = None) -> None:
        self.kind = kind
        self.most = most
        self._of_long = of_long
        self._jobs = SimpleQueue[_Job]()
        self._lock = Lock()
        self.threads = 0
        """How many have been started."""
        self.unfinished = 0
        """How many pieces of work run or wait."""

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Call ``function`` in a thread and return its result. If the caller is cancelled, a call under way goes on.

        Raises:
            MemoryError: there is none for a thread.
        """
        loop, place = asyncio.get_running_loop(), _PLACE.get()
        if self._of_long is not None and place is not None and place.is_long:
            return await self._of_long.run(function, *args, **kwargs)
        job = _Job(
            partial(contextvars.copy_context().run, partial(function, *args, **kwargs)),
            loop,
            loop.create_future(),
            place,
        )
        self._start_thread()
        if place is not None:
            place.hold()
        self._jobs.put(job)
        return cast(T, await job.result)

    def _start_thread(self) -> None:
        with self._lock:
            self.unfinished += 1
            if self.threads == self.most or self.threads >= self.unfinished:
                return
            try:
                Thread(target=self._work, name=f"edgegen-{self.kind}", daemon=True).start()
            except RuntimeError:  # no memory for its stack, or no more threads
                if not self.threads:
                    self.unfinished -= 1
                    raise MemoryError("no thread can be started") from None
            else:
                self.threads += 1

    def _work(self) -> None:
        while True:
            job = self._jobs.get()
            begin = thread_time()
            job.run()
            del job
            if thread_time() - begin > _LONG_SECONDS:
                trim_memory()  # long work leaves much behind in the allocator
            with self._lock:
                self.unfinished -= 1


LONG = WorkThreads("long", 2)
"""Requests with long bodies are read and prepared, and texts are tokenized for themselves. Two at a time: Python
runs one thread at a time anyway, and each that wants to run makes the engine's wait longer for its turns."""
READING = WorkThreads("reading", 4, of_long=LONG)
"""Bodies are parsed and checked; answers are written."""
PREPARING = WorkThreads("preparing", 6, of_long=LONG)
"""Options are checked, templates rendered, prompts tokenized."""
COMPILING = WorkThreads("compiling", 4)
"""The same of requests that constrain their answers: grammars take seconds to compile, one at a time for each model."""
ASKING = WorkThreads("asking", 8)
"""Work that waits for a model: embeddings, and the log-probabilities of prompts."""
LOADING = WorkThreads("loading", 4)
"""Bundles are listed, read, loaded, unloaded and deleted."""
KINDS = (LONG, READING, PREPARING, COMPILING, ASKING, LOADING)


def unfinished_work() -> dict[str, int]:
    """How many pieces of work of each kind run or wait; those without any are left out."""
    return {kind.kind: kind.unfinished for kind in KINDS if kind.unfinished}
