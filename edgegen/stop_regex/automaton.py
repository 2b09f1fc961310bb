"""Automaton: a regular expression as states and the steps between them (Thompson, 1968)."""

from dataclasses import dataclass, field

from edgegen.stop_regex.assertions import Assertion, at_last_line_end

ACCEPT = 0
"""The state of a whole match."""


@dataclass(slots=True)
class State:
    """Reads a character (one of the set ``reads``) on its way to its successor, or none on the way to all of them.

    With an ``assertion`` nothing passes where it does not hold.
    """

    successors: tuple[int, ...] = ()
    reads: int | None = None
    assertion: Assertion | None = None


@dataclass(slots=True)
class Automaton:
    """States by number; ``character_sets`` are what they read, as expressions of one character and their flags."""

    states: list[State] = field(default_factory=lambda: [State()])
    character_sets: dict[tuple[str, int], int] = field(default_factory=dict[tuple[str, int], int])
    start: int = ACCEPT

    @property
    def looks_beyond_newline(self) -> bool:
        """Whether it matters of a newline if it is the last character of all."""
        return any(state.assertion is at_last_line_end for state in self.states)

    def accepting(self) -> frozenset[int]:
        """The states from which a match is whole, whatever character comes next."""
        return self._leading_to({ACCEPT})

    def asserting(self) -> frozenset[int]:
        """The states from which an assertion may be next."""
        return self._leading_to({number for number, state in enumerate(self.states) if state.assertion})

    def _leading_to(self, goals: set[int]) -> frozenset[int]:
        """The goals, and the states from which one is come to with no character and no assertion between."""
        before: dict[int, list[int]] = {}
        for number, state in enumerate(self.states):
            if state.reads is None and state.assertion is None:
                for successor in state.successors:
                    before.setdefault(successor, []).append(number)
        found, ahead = set(goals), [*goals]
        while ahead:
            new = set(before.get(ahead.pop(), ())) - found
            found |= new
            ahead += new
        return frozenset(found)
