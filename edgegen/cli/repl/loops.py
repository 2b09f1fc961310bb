"""Loops of the chat REPL: one for a person at a terminal (prompt_toolkit), one for a pipe."""

import os
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from edgegen.chat.thinking import EFFORTS
from edgegen.cli.repl.commands import COMMANDS, QUOTES, Block
from edgegen.cli.repl.repl import Repl, Screen
from edgegen.cli.repl.settings import SETTABLE
from edgegen.errors import EdgegenError, UsageError
from edgegen.system import home_folder

if TYPE_CHECKING:
    from prompt_toolkit.history import History

HISTORY = "chat_history"
"""The file of typed lines, in EDGEGEN_HOME; only its owner may read it."""

ReadLine = Callable[[str], str]
"""Shows a prompt and gives a line; EOFError for Ctrl-D, KeyboardInterrupt for Ctrl-C."""


def run_piped(repl: Repl, lines: Iterable[bytes]) -> None:
    """Perform each line; the first error ends the chat.

    Raises:
        EdgegenError: a line cannot be performed, or is not UTF-8 text.
    """
    block, begun = Block(), 0
    for number, raw in enumerate(lines, 1):
        try:
            line = raw.decode("utf-8").removesuffix("\n").removesuffix("\r")
        except UnicodeDecodeError as error:
            raise UsageError(f"line {number} of standard input is not UTF-8 text: {error.reason}.") from None
        begun = begun if block.is_open else number
        whole = block.push(line)
        if whole is not None and not repl.handle(whole):
            return
    if block.is_open:
        raise UsageError(f"the {QUOTES} that line {begun} of standard input opens is not closed.")


def run_interactive(repl: Repl, screen: Screen, read: ReadLine) -> None:
    """Perform lines until Ctrl-D or ``/bye``; errors are shown, and Ctrl-C ends what is typed or said."""
    block = Block()
    while True:
        try:
            whole = block.push(read("... " if block.is_open else ">>> "))
            if whole is not None and not repl.handle(whole):
                return
        except EOFError:
            return
        except KeyboardInterrupt:
            block.drop()
            screen.note("(Ctrl-D or /bye leaves)")
        except EdgegenError as error:
            screen.note(f"edgegen: error: {error}")


def terminal_reader() -> ReadLine:
    """A line editor with history and completion of commands. It writes to standard error."""
    import sys

    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import NestedCompleter
    from prompt_toolkit.output import create_output

    words: dict[str, set[str] | None] = {command.name: None for command in COMMANDS}
    words |= {"/think": {"on", "off", "default", *EFFORTS}}
    words |= {"/set": {*SETTABLE, "stats", "system"}, "/show": {"options", "system", "model", "stats"}}
    session: PromptSession[str] = PromptSession(
        history=history_in(home_folder() / HISTORY),
        completer=NestedCompleter.from_nested_dict(words),
        complete_while_typing=False,
        output=create_output(stdout=sys.stderr),
    )
    return session.prompt


def history_in(path: Path) -> "History":
    """The history in ``path``, or one of this chat only where that cannot be written."""
    from prompt_toolkit.history import FileHistory, InMemoryHistory

    with suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY, 0o600)
        try:
            path.chmod(0o600)  # one that is there may have other rights
        finally:
            os.close(descriptor)
        return FileHistory(str(path))
    return InMemoryHistory()
