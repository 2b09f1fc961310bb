"""Progress: who hears how an export goes on."""

from typing import Protocol


class Progress(Protocol):
    """Hears how an export goes on."""

    def stage(self, text: str) -> None:
        """A new stage begins."""
        ...

    def advance(self, done: int, total: int) -> None:
        """So much of the stage is done: parameters written, positions compared."""
        ...

    def warn(self, text: str) -> None:
        """Something the user should know."""
        ...


class Silent:
    """No progress."""

    def stage(self, text: str) -> None: ...

    def advance(self, done: int, total: int) -> None: ...

    def warn(self, text: str) -> None: ...
