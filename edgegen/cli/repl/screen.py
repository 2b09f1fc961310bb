"""Screen of the chat REPL: answers on standard output, notes on standard error, control characters made visible.

On a terminal, words stay whole.
"""

import os
import sys
from typing import IO

import click

from edgegen.cli.repl.word_wrap import WordWrap, wrapped

_VISIBLE = {
    **{code: 0x2400 + code for code in range(0x20) if chr(code) not in "\n\t"},
    0x7F: 0x2421,
    **dict.fromkeys(range(0x80, 0xA0), 0xFFFD),
}
"""Pictures of the ASCII control characters, and the replacement character for those of Latin-1."""


def printable(text: str) -> str:
    """A text whose control characters a terminal shows and does not obey."""
    return text.translate(_VISIBLE)


class StandardScreen:
    """Standard output and error; a terminal never gets an escape sequence of a model or a file."""

    def __init__(self, *, interactive: bool) -> None:
        self.interactive = interactive
        self._wrap = WordWrap(lambda: _columns(sys.stdout)) if sys.stdout.isatty() else None
        self._wraps_notes = sys.stderr.isatty()

    def write(self, piece: str) -> None:
        sys.stdout.write(self._wrap.push(printable(piece)) if self._wrap else piece)
        sys.stdout.flush()

    def note(self, text: str) -> None:
        text = printable(text)
        click.echo(wrapped(text, _columns(sys.stderr)) if self._wraps_notes else text, err=True)


def _columns(terminal: IO[str]) -> int:
    """Of the terminal now: its window may have changed."""
    try:
        return os.get_terminal_size(terminal.fileno()).columns or _COLUMNS
    except OSError:
        return _COLUMNS


_COLUMNS = 80
"""Of a terminal that does not say."""
