"""Background: something that another thread makes meanwhile.

``concurrent.futures`` does as much, but a start would wait for its import, and that of ``logging`` with it.
"""

from collections.abc import Callable
from threading import Thread
from types import TracebackType
from typing import Generic, Self, TypeVar

_T = TypeVar("_T")


class Background(Generic[_T]):
    """Calls ``make`` in a thread of its own, which the end of a ``with`` block waits for."""

    def __init__(self, make: Callable[[], _T]) -> None:
        self._make = make
        self._made: list[_T] = []
        self._error: BaseException | None = None
        self._thread = Thread(target=self._run, name="edgegen background")

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.join()

    def wait(self, seconds: float) -> None:
        """Wait until it is made, but no longer than so."""
        self._thread.join(seconds)

    def result(self) -> _T:
        """What was made; waits for it, and raises what ``make`` raised."""
        self._thread.join()
        if self._error is not None:
            raise self._error
        return self._made[0]

    def _run(self) -> None:
        try:
            self._made.append(self._make())
        except BaseException as error:  # raised where the result is wanted
            self._error = error
