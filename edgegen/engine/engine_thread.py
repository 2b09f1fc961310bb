"""EngineThread: steps an engine in a thread of its own for as long as requests run or wait."""

import atexit
import os
from threading import Lock, Thread, current_thread
from weakref import WeakSet

from edgegen.engine.engine import Engine
from edgegen.engine.sequence import SequenceGroup
from edgegen.errors import UsageError

_PATIENCE = 10.0
"""Seconds that closing, and the end of the program, wait for a step to end."""

_FORKED = (
    "this process was forked after the model was loaded, and a fork has no threads: load the model again in it, or use "
    'multiprocessing.get_context("spawn").'
)


class EngineThread:
    """Drives one engine. Safe to use from any thread.

    The thread starts with the first request and ends with the last: no thread idles, and none keeps a model alive that
    is not used any more.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine: Engine | None = engine  # None once closed: its memory is free
        self._lock = Lock()
        self._started: Thread | None = None
        self._driver: Thread | None = None
        self._refusal = ""
        self._process = os.getpid()
        _ALIVE.add(self)

    def submit(self, group: SequenceGroup) -> None:
        """Have ``group`` run; its ``emit`` is called in the engine's thread.

        Raises:
            UsageError: the caller is a function that the engine calls, which would wait for itself; or this is closed,
                or was made before this process was forked.
        """
        self.refuse_forks()
        self.refuse_own_calls("use it")
        with self._lock:
            if self._engine is None or self._refusal:
                raise UsageError(self._refusal)
            self._engine.add(group)
            if self._driver is None:
                self._started = Thread(target=self._run, args=(self._engine,), name="edgegen", daemon=True)
                self._started.start()

    def cancel(self, group: SequenceGroup) -> None:
        """End ``group`` as soon as possible; a run of this group alone is interrupted. May be called in a finalizer."""
        engine = self._engine
        if engine is None or self._forked:
            group.cancel()
        else:
            engine.cancel(group)

    def close(self, reason: str) -> None:
        """Cancel every request, refuse others with ``reason``, wait for the thread to end, and let go of the engine."""
        if self._forked:  # nothing runs here, and any lock may have been held by a thread that the fork has not
            return
        with self._lock:
            self._refusal = self._refusal or reason
            engine = self._engine
        if engine is None:
            return
        engine.cancel_all()
        for thread in (self._started, self._driver):
            if thread is not None and thread.is_alive():
                thread.join(_PATIENCE)
        self._engine = self._started = None

    def refuse_own_calls(self, what: str) -> None:
        """Refuse a call from the engine's own thread.

        Raises:
            UsageError: the caller is in the engine's thread, which would wait for itself.
        """
        if current_thread() is self._driver:
            raise UsageError(
                f"a function that is called while a model generates cannot {what}: load a second model for it."
            )

    def refuse_forks(self) -> None:
        """Refuse a call in a forked process, which has no such thread.

        Raises:
            UsageError: this process was forked from the one that this was made in.
        """
        if self._forked:
            raise UsageError(_FORKED)

    @property
    def _forked(self) -> bool:
        return os.getpid() != self._process

    def _run(self, engine: Engine) -> None:
        with self._lock:
            # Ctrl-C amid ``start`` leaves open whether there is a thread: so the thread says that it drives, and if
            # a second one has been started, only the first that comes.
            if self._driver is not None:
                return
            self._driver = current_thread()
        while True:
            try:
                engine.step()
            except BaseException as error:  # what fails for one request is handled; this is the engine's own failure
                engine.fail_all(error)
            if engine.idle:
                with self._lock:
                    if engine.idle:
                        self._driver = None
                        return


_ALIVE = WeakSet[EngineThread]()


@atexit.register
def _leave() -> None:
    """A thread that is inside ONNX Runtime while the interpreter goes away would crash the process."""
    for thread in tuple(_ALIVE):
        thread.close("the program is ending: no text can be generated any more.")
