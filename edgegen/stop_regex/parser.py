"""Parser of stop expressions: builds the automaton of a pattern, or says why it cannot.

Python's own parser, the private module ``re._parser``, reads the pattern, so that it means here what it means in
``re``. Without that module, or with parts of a pattern that are not known here, the pattern is refused;
``tests/runtime/stop_regex/test_private_parser.py`` says so when the module moves or changes.
"""

import re
from importlib import import_module
from typing import Any

from edgegen.errors import OptionError
from edgegen.stop_regex.assertions import (
    Assertion,
    WordBoundary,
    at_end,
    at_last_line_end,
    at_line_end,
    at_line_start,
    at_start,
)
from edgegen.stop_regex.automaton import ACCEPT, Automaton, State

LARGEST = 10_000
"""Most states of an automaton, counted repeats written out."""

_LOOKAROUND = "lookahead or lookbehind"
_REFUSED = {
    "ASSERT": _LOOKAROUND,
    "ASSERT_NOT": _LOOKAROUND,
    "FAILURE": _LOOKAROUND,
    "GROUPREF": "a backreference",
    "GROUPREF_EXISTS": "a conditional group",
    "ATOMIC_GROUP": "an atomic group",
    "POSSESSIVE_REPEAT": "a possessive repeat",
}
_CATEGORIES = {
    "CATEGORY_DIGIT": r"\d",
    "CATEGORY_NOT_DIGIT": r"\D",
    "CATEGORY_SPACE": r"\s",
    "CATEGORY_NOT_SPACE": r"\S",
    "CATEGORY_WORD": r"\w",
    "CATEGORY_NOT_WORD": r"\W",
}
_OF_CHARACTERS = re.IGNORECASE | re.DOTALL | re.ASCII
"""The flags that change what one character may be."""


def read_pattern(pattern: str) -> Automaton:
    """The automaton of a pattern.

    Raises:
        OptionError: it is no regular expression, may match nothing at all, is too large, or asks for what cannot be
            told while text arrives.
    """
    try:
        parser: Any = import_module("re._parser")
        tree = parser.parse(pattern)
        shortest = tree.getwidth()[0]
        builder = _Builder(unlimited=parser.MAXREPEAT)
        builder.automaton.start = builder.sequence(tree, tree.state.flags, ACCEPT)
    except re.error as error:
        where = f" at position {error.pos}" if error.pos is not None else ""
        raise OptionError(f"{pattern!r} is no regular expression: {error.msg}{where}") from None
    except (OverflowError, _TooLargeError):
        raise OptionError(f"{_shortened(pattern)} is too large: written out it has over {LARGEST:,} states") from None
    except RecursionError:
        raise OptionError(f"{_shortened(pattern)} is nested too deeply") from None
    except (ImportError, AttributeError) as error:
        raise OptionError(f"this version of Python does not show its regular expressions ({error})") from None
    if builder.refused:
        what = " and ".join(dict.fromkeys(builder.refused))
        raise OptionError(f"{pattern!r} has {what}, which cannot be told while text arrives: say it without")
    if shortest == 0:
        raise OptionError(f"{pattern!r} may match nothing at all and would end every text at once: ask for a character")
    return builder.automaton


class _TooLargeError(Exception):
    pass


class _Builder:
    """Builds from the end: each part is given the state after it, and returns the one it begins with."""

    def __init__(self, unlimited: int) -> None:
        self.automaton = Automaton()
        self.refused: list[str] = []
        self._unlimited = unlimited
        self._parts = 0

    def sequence(self, items: Any, flags: int, after: int) -> int:
        for item in reversed(list(items)):
            after = self._item(str(item[0]), item[1], flags, after)
        return after

    def _item(self, kind: str, value: Any, flags: int, after: int) -> int:
        match kind:
            case "LITERAL" | "NOT_LITERAL" | "ANY" | "IN":
                return self._add(State((after,), reads=self._character_set(_one_character(kind, value), flags)))
            case "AT":
                return self._add(State((after,), assertion=self._assertion(str(value), flags)))
            case "SUBPATTERN":
                _, added, removed, items = value
                if added & (re.ASCII | re.UNICODE):  # ASCII and UNICODE exclude each other
                    flags &= ~(re.ASCII | re.UNICODE)
                return self.sequence(items, (flags | added) & ~removed, after)
            case "BRANCH":
                return self._add(State(tuple(self.sequence(items, flags, after) for items in value[1])))
            case "MAX_REPEAT" | "MIN_REPEAT":
                least, most, items = value
                return self._repeat(least, most, items, flags, after)
            case _:
                self.refused.append(_REFUSED.get(kind, f"{kind.lower()!r}"))
                return after

    def _repeat(self, least: int, most: int, items: Any, flags: int, after: int) -> int:
        begin = after
        if most == self._unlimited:
            begin = self._add(State())
            self.automaton.states[begin].successors = (self.sequence(items, flags, begin), after)
        else:
            for _ in range(most - least):
                begin = self._add(State((self.sequence(items, flags, begin), after)))
        for _ in range(least):
            self._count()  # what is repeated may itself be nothing
            begin = self.sequence(items, flags, begin)
        return begin

    def _assertion(self, kind: str, flags: int) -> Assertion:
        lines = flags & re.MULTILINE
        match kind:
            case "AT_BEGINNING":
                return at_line_start if lines else at_start
            case "AT_BEGINNING_STRING":
                return at_start
            case "AT_END":
                return at_line_end if lines else at_last_line_end
            case "AT_END_STRING":
                return at_end
            case "AT_BOUNDARY" | "AT_NON_BOUNDARY":
                return WordBoundary(re.compile(r"\w", flags & re.ASCII).match, wanted=kind == "AT_BOUNDARY")
            case _:
                self.refused.append(f"{kind.lower()!r}")
                return at_end

    def _character_set(self, source: str, flags: int) -> int:
        sets = self.automaton.character_sets
        return sets.setdefault((source, flags & _OF_CHARACTERS), len(sets))

    def _add(self, state: State) -> int:
        self._count()
        self.automaton.states.append(state)
        return len(self.automaton.states) - 1

    def _count(self) -> None:
        self._parts += 1
        if self._parts > LARGEST:
            raise _TooLargeError


def _one_character(kind: str, value: Any) -> str:
    """The set of characters that an item stands for, written as a pattern again: ``re`` knows its members best."""
    match kind:
        case "ANY":
            return "."
        case "LITERAL":
            return _escaped(value)
        case "NOT_LITERAL":
            return f"[^{_escaped(value)}]"
        case _:
            return f"[{''.join(_member(str(op), argument) for op, argument in value)}]"


def _member(kind: str, value: Any) -> str:
    match kind:
        case "NEGATE":
            return "^"
        case "LITERAL":
            return _escaped(value)
        case "RANGE":
            return f"{_escaped(value[0])}-{_escaped(value[1])}"
        case _:
            return _CATEGORIES[str(value)]


def _escaped(code: int) -> str:
    return f"\\U{code:08x}"


def _shortened(pattern: str) -> str:
    return repr(pattern if len(pattern) <= 60 else f"{pattern[:57]}...")
