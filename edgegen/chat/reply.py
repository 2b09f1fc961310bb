"""ReplyParser: splits an assistant's streamed answer into content, reasoning and tool calls."""

from dataclasses import dataclass, field
from typing import Any

from edgegen.chat.reasoning import ReasoningMarkers
from edgegen.chat.tool_formats import PYTHON_TAG, ToolFormat
from edgegen.chat.tool_sections import SectionReader
from edgegen.chat.tool_stream import CallStream, begins_with_name
from edgegen.chat.tools import ToolCall, ToolCallDelta, Tools


@dataclass(frozen=True, slots=True)
class Reply:
    """An assistant's answer, or a piece of it: what it says, what it thinks, and what it wants called."""

    content: str = ""
    reasoning_content: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_deltas: tuple[ToolCallDelta, ...] = ()

    def __add__(self, other: "Reply") -> "Reply":
        return Reply(
            self.content + other.content,
            self.reasoning_content + other.reasoning_content,
            self.tool_calls + other.tool_calls,
            self.tool_call_deltas + other.tool_call_deltas,
        )

    def to_message(self) -> dict[str, Any]:
        """The assistant's message, to append to a conversation."""
        message: dict[str, Any] = {"role": "assistant", "content": self.content}
        if self.reasoning_content:
            message["reasoning_content"] = self.reasoning_content
        if self.tool_calls:
            message["tool_calls"] = [call.to_message() for call in self.tool_calls]
        return message


@dataclass(frozen=True)
class ReplyFormat:
    """What to look for in an answer.

    Attributes:
        reasoning: the markers of thoughts, if the model thinks aloud.
        in_reasoning: the prompt has begun the thoughts.
        style: how the model writes tool calls, if there are ``tools``.
        constrained: a constraint holds calls to the style and to the tools, so they are read while they are written.
    """

    reasoning: ReasoningMarkers | None = None
    in_reasoning: bool = False
    style: ToolFormat | None = None
    tools: Tools | None = None
    constrained: bool = False

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts that may be control tokens of the model, and that the answer's text must show."""
        thoughts = (self.reasoning.opening, self.reasoning.closing) if self.reasoning else ()
        calls = (*self.style.markers, PYTHON_TAG) if self.style else ()
        return (*thoughts, *calls)


@dataclass(slots=True)
class _Pieces:
    content: list[str] = field(default_factory=list[str])
    reasoning: list[str] = field(default_factory=list[str])
    calls: list[ToolCall] = field(default_factory=list[ToolCall])
    deltas: list[ToolCallDelta] = field(default_factory=list[ToolCallDelta])

    def reply(self) -> Reply:
        return Reply("".join(self.content), "".join(self.reasoning), tuple(self.calls), tuple(self.deltas))


class ReplyParser:
    """Reads the text of one answer as it comes; the pieces do not depend on how the text was cut.

    Malformed calls, and calls of tools that there are not, are content. White space around thoughts and calls is
    dropped. Calls are given out when they are whole; constrained ones, which cannot turn out to be malformed, in
    pieces while they are written.
    """

    def __init__(self, form: ReplyFormat) -> None:
        self._form = form
        self._text = ""
        self._state = self._thoughts if form.in_reasoning else self._start
        self._section: SectionReader | None = None
        self._stream: CallStream | None = None
        self._index = 0
        self._after_marker = form.in_reasoning
        self._called = False
        self._said = False
        self._space = ""

    def push(self, text: str) -> Reply:
        """What became certain with this text."""
        return self._read(text, final=False)

    def finish(self) -> Reply:
        """What was held back. Nothing may be pushed after this."""
        return self._read("", final=True)

    def _read(self, text: str, *, final: bool) -> Reply:
        self._text += text
        pieces = _Pieces()
        while self._state(pieces, final):
            pass
        return pieces.reply()

    def _start(self, pieces: _Pieces, final: bool) -> bool:
        """Before anything is said: thoughts may begin here."""
        reasoning, begun = self._form.reasoning, self._text.lstrip()
        if reasoning is not None and begun.startswith(reasoning.opening):
            self._text, self._after_marker = begun[len(reasoning.opening) :], True
            self._state = self._thoughts
            return True
        if reasoning is not None and reasoning.opening.startswith(begun) and not final:
            return False
        self._state = self._content
        return True

    def _thoughts(self, pieces: _Pieces, final: bool) -> bool:
        assert self._form.reasoning is not None
        closing = self._form.reasoning.closing
        self._drop_space()
        at = self._text.find(closing)
        if at >= 0:
            pieces.reasoning.append(self._text[:at].rstrip())
            self._text, self._after_marker = self._text[at + len(closing) :], True
            self._state = self._content
            return True
        kept = 0 if final else _held(self._text, (closing,))
        shown = self._text[: len(self._text) - kept]
        shown = shown.rstrip()
        pieces.reasoning.append(shown)
        self._text = "" if final else self._text[len(shown) :]
        return False

    def _content(self, pieces: _Pieces, final: bool) -> bool:
        self._drop_space()
        style = self._form.style
        tools = self._form.tools
        if style is None or tools is None or (self._index and not tools.parallel):
            self._say(pieces, self._text)
            return False
        if not style.opening:
            return self._bare_content(pieces, final, style, tools)
        openings = (style.opening, *style.wrappers)
        places = [(at, opening) for opening in openings if (at := self._text.find(opening)) >= 0]
        if places:
            at, opening = min(places)
            said = self._text[:at].rstrip()
            self._space = self._text[len(said) : at]
            self._say(pieces, said, at)
            if opening == style.opening:
                self._begin_calls(style, tools)
            else:
                self._text, self._called = self._text[len(opening) :], True
            return True
        kept = 0 if final else _held(self._text, openings)
        shown = self._text[: len(self._text) - kept]
        if not final or self._called:
            shown = shown.rstrip()
        self._say(pieces, shown)
        return False

    def _bare_content(self, pieces: _Pieces, final: bool, style: ToolFormat, tools: Tools) -> bool:
        """Calls without an opening marker: only an answer that begins with ``{`` can be one.

        Where they are constrained, they begin with the name of a tool.
        """
        begun = self._text.lstrip()
        if self._said or not (begun or final):
            self._say(pieces, self._text if self._said or final else "")
            return False
        if self._form.constrained:
            call = begun.removeprefix(PYTHON_TAG).lstrip()
            begins = begins_with_name(call, style, tools)
        else:
            call, begins = begun, begun.startswith(("{", PYTHON_TAG))
        if begins:
            self._text = call
            self._begin_calls(style, tools)
            return True
        if not final and (begins is None or PYTHON_TAG.startswith(begun)):
            return False
        self._say(pieces, self._text)
        return False

    def _begin_calls(self, style: ToolFormat, tools: Tools) -> None:
        if self._form.constrained:
            self._stream, self._state = CallStream(style, tools, self._index), self._streamed_calls
        else:
            self._section, self._state = SectionReader(style, tools), self._calls

    def _streamed_calls(self, pieces: _Pieces, final: bool) -> bool:
        assert self._stream is not None
        deltas, calls = self._stream.read(self._text)
        pieces.deltas += deltas
        pieces.calls += calls
        if self._stream.end is None:
            if final:  # a call that was cut short is no content
                self._text = ""
            return False
        self._index = self._stream.index
        self._text, self._called = self._text[self._stream.end :], True
        self._state = self._content
        return bool(self._text)

    def _calls(self, pieces: _Pieces, final: bool) -> bool:
        assert self._section is not None
        found = self._section.read(self._text, final=final)
        if found is None:
            return False
        if found.calls:
            assert self._form.tools is not None
            calls = found.calls if self._form.tools.parallel else found.calls[:1]
            pieces.calls += calls
            pieces.deltas += [
                ToolCallDelta(n, call.id, call.name, call.arguments_json) for n, call in enumerate(calls, self._index)
            ]
            self._index += len(calls)
            self._text, self._called = self._text[found.end :], True
        else:
            # The marker is text; what follows it may hold calls again.
            assert self._form.style is not None
            opening = self._form.style.opening or self._text
            self._say(pieces, self._space + opening, len(opening))
        self._state = self._content
        return bool(self._text)

    def _say(self, pieces: _Pieces, text: str, used: int | None = None) -> None:
        """Give out ``text`` as content, and go on behind the first ``used`` characters, by default behind it."""
        if text:
            self._said = True
            pieces.content.append(text)
        self._text = self._text[len(text) if used is None else used :]

    def _drop_space(self) -> None:
        """After a marker, white space says nothing."""
        if self._after_marker:
            self._text = self._text.lstrip()
            self._after_marker = not self._text


def _held(text: str, markers: tuple[str, ...]) -> int:
    """How many of the last characters may belong to a marker, the longest such end."""
    longest = min(len(text), max(map(len, markers)) - 1)
    return next(
        (n for n in range(longest, 0, -1) if any(marker.startswith(text[-n:]) for marker in markers)),
        0,
    )
