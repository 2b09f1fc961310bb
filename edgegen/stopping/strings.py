"""StopStringMatcher: finds the first of several stop strings in text that arrives in pieces."""

from collections.abc import Sequence
from copy import copy
from typing import Self

from edgegen.errors import OptionError
from edgegen.stop_regex import Span


class StopStringMatcher:
    """Finds the first stop string in text that arrives in pieces.

    The first is the one that begins earliest; of several that begin there, the longest that has arrived, or with
    ``wait_for_longest`` the longest that comes. Text is undecided only while it may become a stop string, and only
    undecided text is read again, so a piece costs its own length and the longest stop string's, times their
    number, at most.
    """

    def __init__(self, stop_strings: Sequence[str], *, wait_for_longest: bool = False) -> None:
        """Prepare the stop strings that a text is searched for.

        Raises:
            OptionError: a stop string is empty.
        """
        if "" in stop_strings:
            raise OptionError("an empty stop string would end every text before it begins: leave it out")
        self._stop_strings = sorted(stop_strings, key=len, reverse=True)
        self._first_letters = frozenset(stop[0] for stop in stop_strings)
        self._longest = max(map(len, stop_strings), default=0)
        self._wait_for_longest = wait_for_longest
        self._held = ""
        self.undecided = 0
        """Where text begins that may still become a stop string."""

    def push(self, piece: str) -> Span | None:
        """Take the next piece of text; the stop string if one was found. Then nothing may be pushed any more."""
        text = self._held + piece
        found = self._first_match(text)
        undecided = self._first_partial(text)
        # A partial stop string that begins with the whole one is longer.
        last_certain = undecided - 1 if self._wait_for_longest else undecided
        if found is not None and found.begin <= last_certain:
            return self._placed(found)
        self._held = text[undecided:]
        self.undecided += undecided
        return None

    def finish(self) -> Span | None:
        """End the text; the stop string that waited for a longer one, which now cannot come."""
        return self._placed(self._first_match(self._held))

    def fork(self) -> Self:
        """Another matcher that has read the same text."""
        return copy(self)

    def _placed(self, found: Span | None) -> Span | None:
        return found and Span(self.undecided + found.begin, self.undecided + found.end)

    def _first_match(self, text: str) -> Span | None:
        """The first whole stop string in ``text``."""
        begin, found = len(text), None
        for stop in self._stop_strings:  # from the longest, which so wins over others in its place
            at = text.find(stop, 0, begin + len(stop))
            if 0 <= at < begin:
                begin, found = at, Span(at, at + len(stop))
        return found

    def _first_partial(self, text: str) -> int:
        """Where the first stop string that is not whole yet may begin; the text's end if nowhere."""
        for at in range(max(0, len(text) - self._longest + 1), len(text)):
            if text[at] in self._first_letters:
                tail = text[at:]
                if any(stop.startswith(tail) and stop != tail for stop in self._stop_strings):
                    return at
        return len(text)
