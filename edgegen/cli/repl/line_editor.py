"""The line editor of the chat REPL at a terminal (prompt_toolkit): history, completion by Tab, texts in lines."""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import click

from edgegen.cli.repl.commands import QUOTES, Block, Say, completions
from edgegen.errors import EdgegenError
from edgegen.system import home_folder

if TYPE_CHECKING:
    from prompt_toolkit import PromptSession
    from prompt_toolkit.completion import Completer
    from prompt_toolkit.history import History

HISTORY = "chat_history"
"""The file of what was typed, in EDGEGEN_HOME; only its owner may read it."""


class LineEditor:
    """Reads a line, or a text of several lines between quotes, which is one entry of the history. It writes to standard
    error."""

    def __init__(self, names: Callable[[], Sequence[str]]) -> None:
        """``names``: of the models that ``/model`` completes."""
        self._names = names

    @cached_property
    def _session(self) -> "PromptSession[str]":
        """Made when the first line is read, since it writes to the terminal."""
        from prompt_toolkit import PromptSession
        from prompt_toolkit.application import get_app
        from prompt_toolkit.filters import Condition
        from prompt_toolkit.output import create_output

        return PromptSession(
            history=history_in(home_folder() / HISTORY),
            completer=_completer(self._names),
            complete_while_typing=False,
            multiline=Condition(lambda: is_unfinished(get_app().current_buffer.text)),
            prompt_continuation="... ",
            output=create_output(stdout=sys.stderr),
        )

    def __call__(self, prompt: str) -> str:
        """Return the line that is typed after ``prompt``.

        Raises:
            EOFError: Ctrl-D.
            KeyboardInterrupt: Ctrl-C.
        """
        return self._session.prompt(prompt)

    def edit(self, text: str) -> str | None:
        """Have a person change ``text`` in the editor of VISUAL or EDITOR, or without one on the line; None where it is
        to stay as it was.

        Raises:
            EdgegenError: the editor cannot be run.
        """
        if editor := os.environ.get("VISUAL") or os.environ.get("EDITOR"):
            try:
                return click.edit(text, editor=editor)
            except click.ClickException as error:
                raise EdgegenError(f"{editor}: {error.format_message()}; VISUAL or EDITOR names the editor.") from None
        try:
            typed = self._session.prompt(">>> ", default=f"{QUOTES}{text}{QUOTES}" if "\n" in text else text)
        except (EOFError, KeyboardInterrupt):
            return None
        return unquoted(typed)


def _completer(names: Callable[[], Sequence[str]]) -> "Completer":
    """Completes commands, and what follows them."""
    from prompt_toolkit.completion import CompleteEvent, Completer, Completion, PathCompleter
    from prompt_toolkit.document import Document

    files = PathCompleter(expanduser=True)

    class Commands(Completer):
        def get_completions(self, document: Document, complete_event: CompleteEvent) -> Iterable[Completion]:
            line = document.text_before_cursor
            if line.startswith(("/load ", "/save ")):
                path = Document(line.partition(" ")[2].lstrip())
                yield from files.get_completions(path, complete_event)
                return
            for found in completions(line, names):
                yield Completion(found, start_position=-len(line.rpartition(" ")[2]))

    return Commands()


def is_unfinished(typed: str) -> bool:
    """Whether a text of several lines has begun and not ended."""
    return unquoted(typed) is None


def unquoted(typed: str) -> str | None:
    """A text without the quotes about its lines; None where they are not closed yet."""
    if not typed.startswith(QUOTES):
        return typed
    block, whole = Block(), None
    for line in typed.split("\n"):
        whole = block.push(line)
    return whole.text if isinstance(whole, Say) else whole


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
