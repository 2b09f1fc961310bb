"""Check: what is wrong with a command, found out before its long part, to say it all at once."""

from collections.abc import Callable
from typing import TypeVar

from edgegen.errors import BundleError, UsageError, one_or_list

Item = TypeVar("Item")


class Check:
    """Gathers faults; ``finish`` tells them."""

    def __init__(self) -> None:
        self.faults: list[str] = []
        self._unusable: list[BundleError] = []

    def attempt(self, make: Callable[[], Item]) -> Item | None:
        """What ``make`` gives; None, and a fault more, where it cannot."""
        try:
            return make()
        except UsageError as error:
            self.faults.append(str(error))
        except BundleError as error:
            self._unusable.append(error)
        return None

    def finish(self) -> None:
        """
        Raises:
            UsageError: the command cannot be right.
            BundleError: it can, but a bundle is not there or unreadable.
        """
        messages = [*self.faults, *map(str, self._unusable)]
        if self.faults:
            raise UsageError(one_or_list(messages))
        if messages:
            raise BundleError(one_or_list(messages))
