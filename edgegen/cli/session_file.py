"""Session file that ``edgegen generate --session`` continues from and saves to."""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Self

import click

from edgegen.errors import SessionError, UsageError
from edgegen.system import locked

if TYPE_CHECKING:
    from edgegen.chat import Message
    from edgegen.generation.session import Session


class SessionFile:
    """A session and the file it is saved in."""

    def __init__(self, path: Path, session: "Session") -> None:
        self.session = session
        self._path = path

    @classmethod
    def open(cls, path: Path, *, chat: bool, system: str | None) -> Self:
        """Open the session in ``path``, or an empty one if there is no such file; locked until the command ends.

        Raises:
            SessionError: the file is damaged, or no session; or its folder cannot be written.
            UsageError: it holds a conversation and ``chat`` was not asked for, or it holds a text and ``chat`` was; a
                conversation has begun, and there is a ``system`` message; there is no folder for it; or another process
                has it.
        """
        if not path.parent.is_dir():
            raise UsageError(f"there is no folder {path.parent} to keep the session {path.name} in: make it first.")
        try:
            alone = click.get_current_context().with_resource(locked(Path(os.path.realpath(path))))
        except OSError as error:
            raise SessionError(f"the session cannot be saved to {path}: {error.strerror or error}.") from error
        if not alone:
            raise UsageError(f"another process continues the session {path}: wait for it, or name another file.")
        from edgegen.generation.session import Session

        session = Session.load(path) if path.exists() else Session()
        if session.ids and chat and not session.messages:
            raise UsageError(f"{path} holds a text and no conversation: leave out --chat, or name another file.")
        if session.messages and not chat:
            raise UsageError(f"{path} holds a conversation: add --chat, or name another file.")
        if session.messages and system is not None:
            raise UsageError(f"the conversation in {path} has begun: leave out -s, or name another file.")
        return cls(path, session)

    def save(self) -> None:
        """Write the session to its file.

        Raises:
            SessionError: the file cannot be written.
        """
        self.session.save(self._path)


def dropped_note(messages: int, max_context: int) -> str:
    """Return a warning of a conversation that has outgrown the context."""
    oldest = "the oldest message is" if messages == 1 else f"the {messages} oldest messages are"
    return f"the conversation has outgrown the context of {max_context} tokens: {oldest} left out"


def spoken(session: "Session | None", text: str, system: str | None) -> "list[Message]":
    """A conversation with what a user says now: that of ``session``, or a new one."""
    before = [{"role": "system", "content": system}] if system is not None else []
    return [*(session.messages if session else ()), *before, {"role": "user", "content": text}]
