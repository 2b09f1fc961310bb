"""WordWrap: breaks a text between words at a terminal's width, while it streams.

Widths are cells of a terminal: two for a wide character, such as a Chinese one, none for a combining one.
"""

import re
from collections.abc import Callable
from unicodedata import category, combining, east_asian_width

_TAB = 8
_LEAST = 8
"""Columns that a line has at least; narrower terminals break words."""


def cells(text: str) -> int:
    """Cells of a terminal that a text takes."""
    return sum(map(_cells, text))


def _cells(character: str) -> int:
    if character.isascii():
        return 1
    if combining(character) or category(character) in ("Mn", "Me", "Cf") or "\u1160" <= character <= "\u11ff":
        return 0
    return 2 if east_asian_width(character) in "WF" else 1


class WordWrap:
    """One text, written piece by piece. Characters are shown at once: a word that turns out to be too long for its line
    is erased and written again on the next, so the last column stays free."""

    def __init__(self, columns: Callable[[], int]) -> None:
        """``columns``: of the terminal, asked for with every piece."""
        self._columns = columns
        self._column = 0
        self._word = ""
        """End of the line since the last place to break it."""
        self._is_due = False
        """A blank stood at the edge and is left out: what comes next begins a line."""

    def push(self, piece: str) -> str:
        """Return what the terminal is sent for the next ``piece`` of the text."""
        room = max(self._columns() - 1, _LEAST)
        return "".join(self._next(character, room) for character in piece)

    def _next(self, character: str, room: int) -> str:
        if character == "\n":
            self._begin_line()
            return "\n"
        if character in " \t":
            width = 1 if character == " " else _TAB - self._column % _TAB
            self._is_due = self._is_due or self._column + width > room
            if self._is_due:
                return ""
            self._column, self._word = self._column + width, ""
            return character
        before = ""
        if self._is_due:
            self._begin_line()
            before = "\n"
        width = _cells(character)
        if width == 2:
            self._word = ""  # a line may break on either side of it
        if self._column + width > room:
            word = self._word if 0 < cells(self._word) < self._column else ""  # one that fills the line is broken
            before += f"{_erased(cells(word))}\n{word}"
            self._begin_line(word)
        self._column += width
        self._word = self._word + character if width < 2 else ""
        return before + character

    def _begin_line(self, word: str = "") -> None:
        self._column, self._word, self._is_due = cells(word), word, False


def _erased(count: int) -> str:
    """Return what erases ``count`` cells from the end of a line, on any terminal."""
    return "\b" * count + " " * count + "\b" * count


def wrapped(text: str, columns: int) -> str:
    """A whole text in lines that fit; what a line says after a gap, as in a table, goes on below itself."""
    room = max(columns - 1, _LEAST)
    return "\n".join(part for line in text.split("\n") for part in _lines(line, room))


def _lines(line: str, room: int) -> list[str]:
    if cells(line) <= room:
        return [line]
    gap = re.match(r" *\S.*?\S {2,}(?=\S)| *", line)
    indent = cells(gap[0]) if gap else 0
    if indent > room * 2 // 3:
        indent = 4
    lines, now, used = list[str](), "", 0
    for piece in re.findall(r"\s+|[^\s]+", line):
        width = cells(piece)
        if now.strip() and used + width > room:
            lines.append(now.rstrip())
            now, used = " " * indent, indent
            if piece.isspace():
                continue
        now, used = now + piece, used + width
    return [*lines, now.rstrip()] if now.strip() else lines
