"""Dialogue of the chat REPL: a conversation, or a text that is continued in turns, with its session."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

from edgegen.chat import Conversation, Message
from edgegen.errors import PromptTooLongError, SessionError
from edgegen.generation.results import GenerationChunk, GenerationResult
from edgegen.generation.session import Session
from edgegen.options.generation import GenerationOptions

LIMITED = ("length", "time")
"""Finish reasons of answers that a limit ended."""


class Stream(Protocol):
    """An answer in chunks, as :class:`~edgegen.TextStream` gives it; leaving the ``with`` block cancels the rest."""

    def __enter__(self) -> Self: ...
    def __exit__(self, *exc: object) -> None: ...
    def __iter__(self) -> Iterator[GenerationChunk]: ...
    @property
    def text(self) -> str: ...
    @property
    def result(self) -> GenerationResult: ...


class Model(Protocol):
    """Part of an :class:`~edgegen.LLM` that a dialogue needs."""

    max_context: int

    def stream(self, prompt: str, options: GenerationOptions, /, *, session: Session) -> Stream: ...
    def stream_chat(
        self, conversation: Sequence[Message] | Conversation, options: GenerationOptions, /, *, session: Session
    ) -> Stream: ...
    def decode(self, ids: Sequence[int], /) -> str: ...
    def check_session(self, session: Session, /) -> None: ...


class Chat:
    """A conversation, written by the model's chat template. The session's KV cache makes each turn cheap."""

    def __init__(self, model: Model, system: str | None = None, session: Session | None = None) -> None:
        self._model = model
        self._session = session or Session()
        said = self._session.messages
        self.system = system
        if said and said[0]["role"] == "system":
            self.system, said = str(said[0].get("content") or ""), said[1:]
        self._said: tuple[Message, ...] = tuple(said)
        self._asked: tuple[Message, ...] = ()
        self._begun = ""
        """The beginning of the answer under way, where it is the rest of one."""
        self._is_cut = self._session.can_continue

    @property
    def can_continue(self) -> bool:
        """Whether a limit ended the last answer, and some of it was said."""
        if not self._is_cut or not self._said:
            return False
        last = self._said[-1]
        return last["role"] == "assistant" and bool(last.get("content"))

    @property
    def turns(self) -> int:
        """How many there are."""
        return sum(message["role"] == "user" for message in self._said)

    @property
    def messages(self) -> tuple[Message, ...]:
        """The whole conversation, the system message included."""
        return (*self._system(), *self._said)

    def open(self, text: str, options: GenerationOptions) -> Stream:
        """Start the answer to ``text``; :meth:`keep` adds both.

        Raises:
            EdgegenError: as ``LLM.stream_chat``.
        """
        self._asked, self._begun = (*self._said, {"role": "user", "content": text}), ""
        try:
            return self._model.stream_chat((*self._system(), *self._asked), options, session=self._session)
        except PromptTooLongError as error:
            if options.context_overflow == "drop_oldest":  # what was said before is no reason
                raise
            raise _too_long(error, self._model.max_context, begun=bool(self._said)) from None

    def open_rest(self, options: GenerationOptions) -> Stream:
        """Start the rest of the last answer, which a limit ended; :meth:`keep` joins the two.

        Raises:
            EdgegenError: as ``LLM.stream_chat``.
        """
        *before, last = self._said
        self._asked, self._begun = tuple(before), str(last.get("content"))
        conversation = Conversation((*self._system(), *self._said), continue_final_message=True)
        try:
            return self._model.stream_chat(conversation, options, session=self._session)
        except PromptTooLongError as error:
            raise _too_long(error, self._model.max_context, begun=True) from None

    def keep(self, answer: str, result: GenerationResult | None) -> None:
        """Add what was given to :meth:`open` and its answer; ``result`` is None where Ctrl-C stopped it."""
        if answer or result:
            self._said = (*self._asked, {"role": "assistant", "content": self._begun + answer})
            self._is_cut = result is not None and result.finish_reason in LIMITED

    def undo(self) -> str | None:
        """Take back the last turn; what the user said, or None if there is no turn."""
        last = next((n for n in reversed(range(len(self._said))) if self._said[n]["role"] == "user"), None)
        if last is None:
            return None
        text = self._said[last].get("content")
        self._said, self._is_cut = self._said[:last], False
        self._session.seed = None  # another answer has another seed
        return str(text or "")

    def state(self) -> object:
        """The turns, for :meth:`restore`."""
        return self._said, self._is_cut

    def restore(self, state: Any) -> None:
        """Go back to an earlier :meth:`state`."""
        self._said, self._is_cut = state

    def clear(self) -> None:
        """Forget all turns."""
        self._said, self._session, self._is_cut = (), Session(), False

    def with_model(self, model: Model) -> "Chat":
        """The same conversation with another model, which reads all of it anew."""
        moved = Chat(model, self.system)
        moved._said, moved._is_cut = self._said, self._is_cut
        return moved

    def save(self, path: Path) -> None:
        """Write the session to ``path``.

        Raises:
            SessionError: there is nothing to save, or the file cannot be written.
        """
        if not self._session.ids or not self._said:
            raise SessionError("no answer has been finished yet: there is nothing to save.")
        self._session.messages = self.messages  # with turns that were stopped, without those that were taken back
        self._session.save(path)

    def _system(self) -> tuple[Message, ...]:
        return () if self.system is None else ({"role": "system", "content": self.system},)


class Completion:
    """A text that user and model continue in turns, for base models."""

    def __init__(self, model: Model, session: Session | None = None) -> None:
        self._model = model
        self.system: str | None = None
        self._session = session or Session()
        self._turns: tuple[tuple[str, str], ...] = ()  # what the user typed, and what came of it, answer included
        self._asked = ("", "")
        self._started: Session = self._session
        self._fits = True
        """Whether the session goes on exactly where the text does."""
        self._held = ""
        """The text when the session last took it over."""
        if self._session.ids:
            self._held = model.decode(self._session.ids)
            self._turns, self._fits = (("", self._held),), self._session.can_continue

    @property
    def turns(self) -> int:
        """How many there are."""
        return len(self._turns)

    @property
    def can_continue(self) -> bool:
        """Whether an empty line goes on: always."""
        return True

    def open_rest(self, options: GenerationOptions) -> Stream:
        """Start what follows; :meth:`keep` adds it.

        Raises:
            EdgegenError: as ``LLM.stream``.
        """
        return self.open("", options)

    @property
    def text(self) -> str:
        """All of it."""
        return "".join(text for _, text in self._turns)

    def open(self, text: str, options: GenerationOptions) -> Stream:
        """Start the answer to ``text``; :meth:`keep` adds both.

        Raises:
            EdgegenError: as ``LLM.stream``.
        """
        before = self.text
        piece = joint(before, text) + text
        self._asked = (text, piece)
        try:
            if self._fits:
                self._started = self._session
                return self._model.stream(piece, options, session=self._session)
            self._started = Session()
            return self._model.stream(before + piece, options, session=self._started)
        except PromptTooLongError as error:
            raise _too_long(error, self._model.max_context, begun=bool(before)) from None

    def keep(self, answer: str, result: GenerationResult | None) -> None:
        """Add the text given to :meth:`open` and its answer; ``result`` is None where Ctrl-C stopped it."""
        typed, piece = self._asked
        self._turns = (*self._turns, (typed, piece + answer))
        if result:
            self._session, self._held = self._started, self.text
        # An end-of-sequence id or a stop string is in the session and not in the text that goes on.
        self._fits = result is not None and self._session.can_continue

    def undo(self) -> str | None:
        """Take back the last turn; what the user said, or None if there is no turn."""
        if not self._turns:
            return None
        *before, (typed, _) = self._turns
        self._turns, self._fits = tuple(before), False
        return typed

    def state(self) -> object:
        """The turns, for :meth:`restore`."""
        return self._turns, self._fits

    def restore(self, state: Any) -> None:
        """Go back to an earlier :meth:`state`."""
        self._turns, self._fits = state

    def clear(self) -> None:
        """Forget all turns."""
        self._turns, self._session, self._fits = (), Session(), True

    def with_model(self, model: Model) -> "Completion":
        """The same text with another model, which reads all of it anew."""
        moved = Completion(model)
        moved._turns, moved._fits = self._turns, not self._turns
        return moved

    def save(self, path: Path) -> None:
        """Write the session to ``path``.

        Raises:
            SessionError: there is nothing to save, or the file cannot be written.
        """
        if not self._turns or not self._session.ids:
            raise SessionError("no answer has been finished yet: there is nothing to save.")
        if self._held != self.text:
            raise SessionError("an answer was stopped or taken back: let the text go on once, then save it.")
        self._session.save(path)


Dialogue = Chat | Completion


def dialogue_of(model: Model, session: Session) -> Dialogue:
    """The dialogue that a saved session continues.

    Raises:
        SessionError: the session was begun with another model.
    """
    model.check_session(session)
    return Chat(model, session=session) if session.messages else Completion(model, session)


def joint(before: str, text: str) -> str:
    """A blank between two pieces of a text where both have a word at the border."""
    return " " if before and text and not before[-1].isspace() and (text[0].isalnum() or text[0] in "\"'“‘(") else ""


def _too_long(error: PromptTooLongError, max_context: int, *, begun: bool) -> PromptTooLongError:
    if not begun:
        return error
    return PromptTooLongError(
        f"this no longer fits the model's context of {max_context} tokens: "
        "/undo takes back the last turn, /clear begins anew."
    )
