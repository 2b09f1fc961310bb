"""CancelToken: cancels requests from any thread."""

from collections.abc import Callable
from threading import RLock


class CancelToken:
    """Ends requests: ``llm.generate(prompt, cancel=token)`` in one thread, ``token.cancel()`` in another.

    One token may serve several requests; requests that start after it was used end at once.
    """

    def __init__(self) -> None:
        self._lock = RLock()
        self._cancelled = False
        self._listeners: dict[object, Callable[[], None]] = {}

    def __repr__(self) -> str:
        return f"CancelToken(cancelled={self._cancelled})"

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> None:
        """End the requests, amid a run of the model; does nothing the second time."""
        with self._lock:
            self._cancelled = True
            listeners = [*self._listeners.values()]
            self._listeners.clear()
        for listener in listeners:
            listener()

    def attach(self, key: object, listener: Callable[[], None]) -> None:
        """Have ``listener`` called when this is cancelled, or now if it was."""
        with self._lock:
            if not self._cancelled:
                self._listeners[key] = listener
                return
        listener()

    def detach(self, key: object) -> None:
        """Forget the listener of ``key``."""
        with self._lock:
            self._listeners.pop(key, None)
