"""Check: validates a command's arguments before its long part, and reports all problems at once."""

from collections.abc import Callable
from typing import TypeVar

from edgegen.errors import BundleError, UsageError, one_or_list

Item = TypeVar("Item")


class Check:
    """Gathers problems; ``finish`` tells them."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self._unusable: list[BundleError] = []

    def attempt(self, make: Callable[[], Item]) -> Item | None:
        """What ``make`` gives; None, and a problem more, where it cannot."""
        try:
            return make()
        except UsageError as error:
            self.problems.append(str(error))
        except BundleError as error:
            self._unusable.append(error)
        return None

    def finish(self) -> None:
        """Raise everything that was found wrong, in one error.

        Raises:
            UsageError: the arguments are invalid.
            BundleError: they are valid, but a bundle is not there or unreadable.
        """
        messages = [*self.problems, *map(str, self._unusable)]
        if self.problems:
            raise UsageError(one_or_list(messages))
        if messages:
            raise BundleError(one_or_list(messages))
