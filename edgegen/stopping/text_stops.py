"""TextStops: finds stop strings and a stop expression in streamed text, and holds back what may be part of one."""

from collections.abc import Sequence
from copy import copy
from typing import Self

from edgegen.engine.finish import StopMatch, StopRule
from edgegen.stop_regex import Span, StopRegex, StopRegexMatcher
from edgegen.stopping.strings import StopStringMatcher

_Found = tuple[Span, StopRule] | None


class TextStops:
    """Reads a text in pieces and gives back what may be shown of it: what comes before the first stop.

    Which stop is the first: see :mod:`edgegen.stopping`.
    """

    def __init__(self, stop_strings: Sequence[str], stop_regex: StopRegex | None, *, include: bool) -> None:
        """``include``: the stop is shown too.

        Raises:
            OptionError: a stop string is empty.
        """
        self._strings = StopStringMatcher(stop_strings, wait_for_longest=include)
        self._regex = StopRegexMatcher(stop_regex) if stop_regex else None
        self._include = include
        self._text = ""  # as far as it may be part of a match
        self._begin = 0  # where that begins
        self._shown = 0

    def push(self, piece: str) -> tuple[str, StopMatch | None]:
        """Take the next piece of text.

        Returns:
            The text that may be shown now, and the stop if one was found. Then what follows it is dropped, and nothing
            may be pushed any more.
        """
        self._text += piece
        if found := self._find(piece):
            return self._end_at(*found)
        may_be_shown = undecided = self._strings.undecided
        if self._regex is not None:
            undecided = min(undecided, self._regex.undecided)
            # A match that is shown has nothing to hide but what comes after it.
            may_be_shown = min(may_be_shown, self._regex.earliest_end) if self._include else undecided
        shown = self._show(may_be_shown)
        self._text, self._begin = self._text[undecided - self._begin :], undecided
        return shown, None

    def finish(self) -> tuple[str, StopMatch | None]:
        """End the text.

        Returns:
            What was held back, and the stop in it that the end made certain, if there is one.
        """
        found = _first(self._strings.finish(), self._regex.finish() if self._regex else None)
        return self._end_at(*found) if found else (self._show(self._begin + len(self._text)), None)

    def fork(self) -> Self:
        """The same stops for another text with the same prefix."""
        fork = copy(self)
        fork._strings = self._strings.fork()
        fork._regex = self._regex and self._regex.fork()
        return fork

    def _find(self, piece: str) -> _Found:
        seen = self._regex.seen if self._regex else 0
        match = self._regex.push(piece) if self._regex else None
        if self._regex is None or match is None:
            return _first(self._strings.push(piece), None)
        # An expression has matched: did a stop string come before?
        *earlier, last = piece[: self._regex.seen - seen]
        for character in earlier:
            if string := self._strings.push(character):
                return string, "stop_strings"
        return _first(self._strings.push(last) or self._strings.finish(), match)

    def _end_at(self, span: Span, rule: StopRule) -> tuple[str, StopMatch]:
        begin, end = (place - self._begin for place in span)
        return self._show(span.end if self._include else span.begin), StopMatch("stop", self._text[begin:end], rule)

    def _show(self, end: int) -> str:
        """The text up to ``end`` that was not shown yet."""
        shown = self._text[self._shown - self._begin : end - self._begin]
        self._shown = max(self._shown, end)
        return shown


def _first(string: Span | None, match: Span | None) -> _Found:
    """The one that begins first."""
    if string is not None and (match is None or string.begin <= match.begin):
        return string, "stop_strings"
    return (match, "stop_regex") if match is not None else None
