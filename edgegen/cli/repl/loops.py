"""Loops of the chat REPL: one for a person at a terminal, one for a pipe."""

import codecs
from collections.abc import Callable, Iterable

from edgegen.cli.repl.commands import QUOTES, Block
from edgegen.cli.repl.repl import Repl, Screen
from edgegen.errors import EdgegenError, UsageError

ReadLine = Callable[[str], str]
"""Shows a prompt and gives a line; EOFError for Ctrl-D, KeyboardInterrupt for Ctrl-C."""


def run_piped(repl: Repl, lines: Iterable[bytes]) -> None:
    """Perform each line; the first error ends the chat.

    Raises:
        EdgegenError: a line cannot be performed, or is not UTF-8 text.
    """
    block, begun = Block(), 0
    for number, raw in enumerate(lines, 1):
        data = raw.removeprefix(codecs.BOM_UTF8) if number == 1 else raw
        try:
            line = data.decode("utf-8").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise UsageError(f"line {number} of standard input is not UTF-8 text: {error.reason}.") from None
        begun = begun if block.is_open else number
        whole = block.push(line)
        if whole is not None and not repl.handle(whole):
            return
    if block.is_open:
        raise UsageError(f"the {QUOTES} that line {begun} of standard input opens is not closed.")


def run_interactive(repl: Repl, screen: Screen, read: ReadLine) -> None:
    """Perform what is typed until Ctrl-D or ``/bye``; errors are shown, and Ctrl-C ends what is typed or said."""
    block = Block()
    while True:
        try:
            typed = read("... " if block.is_open else ">>> ")
            # A text that was pasted may have lines too, and is one message.
            lines = typed.split("\n") if block.is_open or typed.startswith(QUOTES) else [typed]
            for line in lines:
                whole = block.push(line)
                if whole is not None and not repl.handle(whole):
                    return
        except EOFError:
            return
        except KeyboardInterrupt:
            block.drop()
            screen.note("(Ctrl-D or /bye leaves)")
        except EdgegenError as error:
            screen.note(f"edgegen: error: {error}")
