"""Check: validates a command's arguments before its long part, and reports all problems at once."""

from collections.abc import Callable
from typing import TypeVar

from edgegen.cli.os_errors import long_path_note
from edgegen.errors import BundleError, EdgegenError, UsageError, one_or_list

Item = TypeVar("Item")


class Check:
    """Gathers problems; ``finish`` tells them."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._unusable: list[BundleError] = []
        self._notes: list[str] = []

    def attempt(self, make: Callable[[], Item]) -> Item | None:
        """Return the result of ``make``; None, and one problem more, where it fails."""
        try:
            return make()
        except UsageError as error:
            self.problems.append(str(error))
            self._keep_notes(error)
        except BundleError as error:
            self._unusable.append(error)
            self._keep_notes(error)
        return None

    def _keep_notes(self, error: EdgegenError) -> None:
        long_path = long_path_note(error)
        self._notes += [*getattr(error, "__notes__", ()), *([long_path] if long_path else [])]

    def finish(self) -> None:
        """Raise everything that was found wrong, in one error.

        Raises:
            UsageError: the arguments are invalid.
            BundleError: they are valid, but a bundle is not there or unreadable.
        """
        messages = [*self.problems, *map(str, self._unusable)]
        if not messages:
            return
        failure = (UsageError if self.problems else BundleError)(one_or_list(messages))
        for note in self._notes:
            failure.add_note(note)
        raise failure
