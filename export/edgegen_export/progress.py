"""ExportProgress: what an export reports while it runs: stages, how far each is, and warnings."""

from typing import Protocol


class ExportProgress(Protocol):
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
