"""Assertions of a stop expression, such as ``^`` and ``\\b``: conditions between two characters."""

from collections.abc import Callable
from dataclasses import dataclass

Place = tuple[str, str, bool]
"""The characters before and after, empty where the text begins and ends; whether the one after is the last."""

Assertion = Callable[[Place], bool]


def at_start(place: Place) -> bool:
    r"""``\A``, and ``^`` but for MULTILINE."""
    return not place[0]


def at_line_start(place: Place) -> bool:
    """``^`` with MULTILINE."""
    return place[0] in ("", "\n")


def at_end(place: Place) -> bool:
    r"""``\Z``."""
    return not place[1]


def at_last_line_end(place: Place) -> bool:
    """``$`` but for MULTILINE: the end, or before the newline that is the last character."""
    return not place[1] or (place[2] and place[1] == "\n")


def at_line_end(place: Place) -> bool:
    """``$`` with MULTILINE."""
    return place[1] in ("", "\n")


@dataclass(frozen=True, slots=True)
class WordBoundary:
    r"""``\b``, or ``\B`` where it is not ``wanted``."""

    is_word: Callable[[str], object]
    wanted: bool

    def __call__(self, place: Place) -> bool:
        return (bool(self.is_word(place[0])) != bool(self.is_word(place[1]))) == self.wanted
