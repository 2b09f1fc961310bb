"""The first stop of a text by its definition, found by trying every place."""

import re
from collections.abc import Sequence


def cut(text: str, lengths: Sequence[int]) -> list[str]:
    """``text`` in pieces of these lengths, and what is left."""
    pieces: list[str] = []
    for length in lengths:
        pieces.append(text[:length])
        text = text[length:]
    return [*pieces, text]


def first_stop_string(text: str, stops: Sequence[str]) -> tuple[int, int] | None:
    """The one that begins first in a whole text, and of those that begin there the longest."""
    for begin in range(len(text)):
        if ends := [begin + len(stop) for stop in stops if text.startswith(stop, begin)]:
            return begin, max(ends)
    return None


def first_match(text: str, pattern: str, flags: int = 0) -> tuple[int, int] | None:
    """The match that ends first in a whole text, and of those the one that begins first."""
    for end in range(1, len(text) + 1):
        ends_here = re.compile(rf"(?:{pattern})(?<=(?s:\A.{{{end}}}))", flags)
        for begin in range(end):
            if ends_here.match(text, begin):
                return begin, end
    return None


def first_stop(text: str, stops: Sequence[str], pattern: str | None, *, include: bool) -> tuple[int, int, str] | None:
    """Begin, end and rule of what ends the text, read character by character; ``pattern`` has no assertions."""
    for read in range(1, len(text) + 1):
        arrived = text[:read]
        string = first_stop_string(arrived, stops)
        match = first_match(arrived, pattern) if pattern else None
        if match is not None or (string is not None and _is_certain(arrived, string[0], stops, include=include)):
            return _first(string, match)
    return _first(first_stop_string(text, stops), None)


def _is_certain(arrived: str, begin: int, stops: Sequence[str], *, include: bool) -> bool:
    """Whether no partial stop string began before ``begin``, nor there if the longest is to be shown."""
    tails = [arrived[at:] for at in range(begin + include)]
    return not any(stop.startswith(tail) and stop != tail for tail in tails for stop in stops)


def _first(string: tuple[int, int] | None, match: tuple[int, int] | None) -> tuple[int, int, str] | None:
    if string is not None and (match is None or string[0] <= match[0]):
        return (*string, "stop_strings")
    return (*match, "stop_regex") if match is not None else None
