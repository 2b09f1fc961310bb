"""Screen of the chat REPL: answers on standard output, notes on standard error, control characters made visible."""

import sys

import click

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
        self._out_is_terminal = sys.stdout.isatty()

    def write(self, piece: str) -> None:
        sys.stdout.write(printable(piece) if self._out_is_terminal else piece)
        sys.stdout.flush()

    def note(self, text: str) -> None:
        click.echo(printable(text), err=True)
