"""StopRegex: a compiled regular expression that ends a text."""

import re
from functools import lru_cache

from edgegen.stop_regex.parser import read_pattern

_REMEMBERED = 4096
"""How many different characters are remembered with what reads them."""


class StopRegex:
    """The automaton of a pattern, ready to run; it does not change and may be shared.

    Attributes:
        start: where a match begins.
        accepting: the states from which a match is whole, whatever character comes next.
        asserting: the states from which an assertion may be next.
        successors: those of each state.
        assertions: what each state asks for, or None.
        reads: the character set that each state reads, as a bit; 0 where it reads none.
        looks_beyond_newline: whether it matters of a newline if it is the last character of all.
        sets_of: the sets that a character is in, as bits.
        first_steps: the states after a match's first character; None where that depends on its place.
    """

    def __init__(self, pattern: str) -> None:
        """Compile a pattern to an automaton.

        Raises:
            OptionError: see :func:`~edgegen.stop_regex.parser.read_pattern`.
        """
        automaton = read_pattern(pattern)
        self.start = automaton.start
        self.accepting, self.asserting = automaton.accepting(), automaton.asserting()
        self.successors = tuple(state.successors for state in automaton.states)
        self.assertions = tuple(state.assertion for state in automaton.states)
        self.reads = tuple(0 if state.reads is None else 1 << state.reads for state in automaton.states)
        self.looks_beyond_newline = automaton.looks_beyond_newline
        self._character_sets = [re.compile(source, flags) for source, flags in automaton.character_sets]
        self._readers_of_first = self._states_that_read_first()
        self.sets_of = lru_cache(_REMEMBERED)(self._sets_of)
        self.first_steps = lru_cache(_REMEMBERED)(self._first_steps)

    @staticmethod
    @lru_cache(maxsize=64)
    def of(pattern: str) -> "StopRegex":
        """The compiled pattern, the same one for the same pattern."""
        return StopRegex(pattern)

    def _sets_of(self, character: str) -> int:
        return sum(1 << n for n, members in enumerate(self._character_sets) if members.match(character))

    def _first_steps(self, character: str) -> tuple[int, ...] | None:
        if self._readers_of_first is None:
            return None
        sets = self.sets_of(character)
        return tuple(self.successors[state][0] for state in self._readers_of_first if self.reads[state] & sets)

    def _states_that_read_first(self) -> list[int] | None:
        reached, ahead = {self.start}, [self.start]
        for state in ahead:
            if self.assertions[state]:
                return None
            if not self.reads[state]:
                new = dict.fromkeys(s for s in self.successors[state] if s not in reached)
                reached |= new.keys()
                ahead += new
        return [state for state in ahead if self.reads[state]]
