"""StopRegexMatcher: finds a stop expression in text that arrives in pieces.

It keeps all states that the text read so far may have led to, each with the earliest place where a match through it
may have begun (Pike's algorithm: Cox, "Regular Expression Matching: the Virtual Machine Approach", 2009). So a
character costs at most the number of states, whatever the text and the expression.
"""

from copy import copy
from typing import NamedTuple, Self

from edgegen.stop_regex.assertions import Place
from edgegen.stop_regex.automaton import ACCEPT
from edgegen.stop_regex.regex import StopRegex

_Threads = dict[int, int]
"""States, and where a match through each began; in the order of these places."""


class Span(NamedTuple):
    """Characters ``begin`` to ``end`` of the text, counted from where the answer begins."""

    begin: int
    end: int


class StopRegexMatcher:
    """Finds the match that ends first, and of those the one that begins first, whatever pieces the text comes in."""

    def __init__(self, regex: StopRegex) -> None:
        self.seen = 0
        """How many characters were looked at, with the one that made a match certain."""
        self._position = 0
        self._regex = regex
        self._threads: _Threads = {}
        self._before = ""
        self._at_newline: Self | None = None

    @property
    def undecided(self) -> int:
        """Where text begins that may still become part of a match."""
        begin = next(iter(self._threads.values()), self._position)
        return begin if self._at_newline is None else min(begin, self._at_newline.undecided)

    @property
    def earliest_end(self) -> int:
        """Where a match that is not found yet may end at the earliest."""
        return self._position if self._at_newline is None else self._position - 1

    def push(self, piece: str) -> Span | None:
        """Read the next piece of text, but no further than to a match. Then nothing may be pushed any more."""
        for character in piece:
            self.seen += 1
            if found := self._read(character):
                return found
        return None

    def finish(self) -> Span | None:
        """End the text; the match that this makes whole."""
        if self._at_newline is None:
            return self._match_at_end()
        # Only now is it known that this newline was the last character: read it once more.
        again = self._at_newline.fork()
        return again._read("\n", last=True) or again._match_at_end()

    def fork(self) -> Self:
        """Another matcher that has read the same text."""
        return copy(self)  # nothing that it refers to is ever changed

    def _read(self, character: str, *, last: bool = False) -> Span | None:
        regex, threads = self._regex, _Threads()
        first_steps = regex.first_steps(character)
        if self._threads or first_steps is None:
            reached = self._reach((self._before, character, last), from_start=first_steps is None)
            if ACCEPT in reached:
                return Span(reached[ACCEPT], self._position)
            sets = regex.sets_of(character)
            for state, begin in reached.items():
                if regex.reads[state] & sets:
                    threads.setdefault(regex.successors[state][0], begin)
        for state in first_steps or ():
            threads.setdefault(state, self._position)
        self._at_newline = self._without_memory() if character == "\n" and regex.looks_beyond_newline else None
        self._threads, self._before, self._position = threads, character, self._position + 1
        return self._match_already()

    def _match_already(self) -> Span | None:
        """The match that ends here whatever comes next."""
        if self._at_newline is not None:
            return None  # at the end of the text, one that ends before this newline comes first
        for state, begin in self._threads.items():
            if state in self._regex.accepting:
                return Span(begin, self._position)
            if state in self._regex.asserting:
                return None  # one that begins earlier may end here too: the next character decides
        return None

    def _match_at_end(self) -> Span | None:
        """The match that ends here because the text does."""
        reached = self._reach((self._before, "", False), from_start=False)
        return Span(reached[ACCEPT], self._position) if ACCEPT in reached else None

    def _reach(self, place: Place, *, from_start: bool) -> _Threads:
        """All states that can be come to without reading."""
        regex, reached = self._regex, _Threads()
        starts = [*self._threads.items(), *([(regex.start, self._position)] if from_start else [])]
        for state, begin in starts:
            ahead = [state]
            while ahead:
                state = ahead.pop()
                if state not in reached:
                    reached[state] = begin
                    assertion = regex.assertions[state]
                    if not regex.reads[state] and (assertion is None or assertion(place)):
                        ahead += regex.successors[state]
        return reached

    def _without_memory(self) -> Self:
        fork = self.fork()
        fork._at_newline = None
        return fork
