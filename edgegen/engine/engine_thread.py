"""EngineThread: who drives an engine while it has work."""

import atexit
from threading import Lock, Thread, current_thread
from weakref import WeakSet

from edgegen.engine.engine import Engine
from edgegen.engine.sequence import SequenceGroup
from edgegen.errors import UsageError

_PATIENCE = 10.0
"""Seconds that the end of the program waits for a step to end."""


class EngineThread:
    """Steps an engine in a thread of its own for as long as there is work. Safe to use from any thread.

    The thread begins with the first request and ends with the last: nothing idles, and nothing holds a model that
    nobody uses any more.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._lock = Lock()
        self._started: Thread | None = None
        self._driver: Thread | None = None
        self._closed = False
        _ALIVE.add(self)

    def submit(self, group: SequenceGroup) -> None:
        """Have ``group`` run; its ``emit`` is called in the engine's thread.

        Raises:
            UsageError: this is the engine's thread, which would wait for itself; or the program is ending.
        """
        if current_thread() is self._driver:
            raise UsageError(
                "a function that is called while a text is made cannot use the same model, which is at work on that "
                "text: load a second one for it."
            )
        with self._lock:
            if self._closed:
                raise UsageError("the program is ending: no text can be begun any more.")
            self._engine.add(group)
            if self._driver is None:
                self._started = Thread(target=self._run, name="edgegen", daemon=True)
                self._started.start()

    def cancel(self, group: SequenceGroup) -> None:
        """End ``group`` as soon as possible, amid a run that is for nobody else. May be called in a finalizer."""
        self._engine.cancel(group)

    def close(self) -> None:
        """Cancel everything, begin nothing any more, and wait for the thread to end."""
        with self._lock:
            self._closed = True
        self._engine.cancel_all()
        for thread in (self._started, self._driver):
            if thread is not None and thread.is_alive():
                thread.join(_PATIENCE)

    def _run(self) -> None:
        with self._lock:
            # Ctrl-C amid ``start`` leaves open whether there is a thread: so the thread says that it drives, and if
            # a second one has been started, only the first that comes.
            if self._driver is not None:
                return
            self._driver = current_thread()
        while True:
            try:
                self._engine.step()
            except BaseException as error:  # what fails for one request is handled; this is the engine's own failure
                self._engine.fail_all(error)
            if self._engine.idle:
                with self._lock:
                    if self._engine.idle:
                        self._driver = None
                        return


_ALIVE = WeakSet[EngineThread]()


@atexit.register
def _leave() -> None:
    """A thread that is inside ONNX Runtime while the interpreter goes away would bring the process down."""
    for thread in tuple(_ALIVE):
        thread.close()
