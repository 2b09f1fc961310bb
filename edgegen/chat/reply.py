"""ReplyParser: splits an assistant's streamed answer into content, reasoning and tool calls."""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

from edgegen.chat.distinct_calls import DistinctCalls
from edgegen.chat.layout import AnswerLayout
from edgegen.chat.reasoning import ReasoningMarkers
from edgegen.chat.tool_formats import PYTHON_TAG, ToolFormat, control_texts
from edgegen.chat.tool_sections import SectionReader
from edgegen.chat.tool_stream import CallStream, begins_with_name
from edgegen.chat.tools import ToolCall, ToolCallDelta, Tools, joined_deltas


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

    def with_joined_deltas(self) -> "Reply":
        """The same, with one delta for each call."""
        several = len(self.tool_call_deltas) > 1
        return replace(self, tool_call_deltas=joined_deltas(self.tool_call_deltas)) if several else self

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
    """Parts to look for in an answer.

    Attributes:
        reasoning: the markers of thoughts, if the model thinks aloud.
        in_reasoning: the prompt has begun the thoughts.
        style: how the model writes tool calls, if there are ``tools``.
        constrained: a constraint holds calls to the style and to the tools, so they are read while they are written.
        layout: what else stands in the answers of the model's family.
        begun: the prompt ends with the layout's ``begun``.
        special: the markers that are special tokens of the model, which are no text wherever they stand.
    """

    reasoning: ReasoningMarkers | None = None
    in_reasoning: bool = False
    style: ToolFormat | None = None
    tools: Tools | None = None
    constrained: bool = False
    layout: AnswerLayout | None = None
    begun: bool = False
    special: frozenset[str] = frozenset()

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts that may be control tokens of the model, and that the answer's text must show."""
        thoughts = control_texts(self.reasoning.opening, self.reasoning.closing) if self.reasoning else ()
        calls = (*self.style.markers, PYTHON_TAG) if self.style else ()
        return tuple(dict.fromkeys((*thoughts, *calls, *(self.layout.markers if self.layout else ()))))

    def following(self, prompt_end: str) -> "ReplyFormat":
        """The format of an answer to a prompt that ends with this text."""
        in_reasoning = self.reasoning is not None and self.reasoning.left_open(prompt_end)
        begun = self.layout is not None and prompt_end.endswith(self.layout.begun or "\0")
        return replace(self, in_reasoning=in_reasoning, begun=begun)


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

    Malformed calls, and calls of tools that there are not, are content. Where calls must be made, one that repeats an
    earlier one is left out. White space around thoughts and calls is
    dropped, and so are control texts. Calls are given out when they are whole; constrained ones, which cannot turn out
    to be malformed, in pieces while they are written.
    """

    def __init__(self, form: ReplyFormat) -> None:
        self._form = form
        layout = form.layout or AnswerLayout(())
        self._layout: AnswerLayout = layout
        self._text: str = layout.begun if form.begun else ""
        self._next = self._content if layout.headers is None else self._header
        self._state = self._start if layout.headers is None else self._header
        if form.in_reasoning:
            self._state = self._thoughts
        self._section: SectionReader | None = None
        self._stream: CallStream | None = None
        self._index = 0
        self._after_marker = form.in_reasoning
        self._called = False
        self._said = False
        self._ended = False
        self._around = layout.around[0] == "" != layout.around[1] and form.in_reasoning
        self._may_begin_around = layout.around[0] != ""
        self._may_be_call = True
        self._distinct = DistinctCalls() if form.tools is not None and form.tools.required else None
        self._message = _Message()
        self._message_kinds = set[bool]()
        self._space = ""
        self._cut = False

    @property
    def reads_layout(self) -> bool:
        """Whether answers have more than thoughts and calls, so that what is said is not their text."""
        return self._form.layout is not None

    def push(self, text: str) -> Reply:
        """Read more text, and return the part of the reply that became certain with it."""
        return self._read(text, final=False)

    def finish(self, *, cut: bool = False) -> Reply:
        """Return the part of the reply that was held back. Nothing may be pushed after this.

        ``cut``: the answer did not end by itself; then a call or a marker that is not whole is no content.
        """
        self._cut = cut
        return self._read("", final=True)

    def _read(self, text: str, *, final: bool) -> Reply:
        self._text += text
        pieces = _Pieces()
        while self._state(pieces, final):
            pass
        if self._distinct is not None:
            pieces.deltas, pieces.calls = self._distinct.read(pieces.deltas, pieces.calls)
        return pieces.reply()

    @property
    def has_repeated(self) -> bool:
        """Whether a call that had to be made was made again: it is left out, and the answer can end."""
        return self._distinct is not None and self._distinct.repeated

    def _start(self, pieces: _Pieces, final: bool) -> bool:
        """Before anything is said: thoughts may begin here."""
        reasoning, begun = self._form.reasoning, self._text.lstrip()
        if reasoning is not None and begun.startswith(reasoning.opening):
            self._text, self._after_marker = begun[len(reasoning.opening) :], True
            self._state = self._thoughts
            return True
        if reasoning is not None and reasoning.opening.startswith(begun):
            if not final:
                return False
            self._text = "" if self._cut else self._text
        self._state = self._content
        return True

    def _thoughts(self, pieces: _Pieces, final: bool) -> bool:
        assert self._form.reasoning is not None
        closing = self._form.reasoning.closing
        self._drop_space()
        found, kept = self._search((closing, *self._form.special), final)
        if found is not None:
            begin, end = found.span()
            thought, thinks_on = self._text[:begin], found[0] != closing
            pieces.reasoning.append(thought if thinks_on else thought.rstrip())
            self._text = self._text[end:]
            if not thinks_on:
                self._after_marker, self._state = True, self._next
                self._around = self._around or self._layout.around[0] == "" != self._layout.around[1]
            return True
        shown = self._text[: len(self._text) - kept].rstrip()
        pieces.reasoning.append(shown)
        self._text = "" if final else self._text[len(shown) :]
        return False

    def _content(self, pieces: _Pieces, final: bool) -> bool:
        self._drop_space()
        style, tools, reasoning = self._form.style, self._form.tools, self._form.reasoning
        calls = style is not None and tools is not None and not (self._index and not tools.parallel)
        if self._may_begin_around and (begins := self._begins_around(final)) is not False:
            return begins is True
        if calls and self._may_be_call and style is not None and tools is not None and not style.opening:
            begins = self._begins_bare_call(style, tools, final)
            if begins is not False:
                return begins is True
        thinks = reasoning.opening if reasoning is not None and reasoning.again else ""
        silent = (*self._layout.skipped, *([self._layout.around[1]] if self._around else []))
        in_calls = (style.opening, style.turn_end, *style.wrappers) if calls and style is not None else ()
        match, kept = self._search((*in_calls, *silent, thinks, *self._form.special), final)
        if match is None:
            shown = self._text[: len(self._text) - kept]
            if not final or self._called or (kept and self._cut):
                shown = shown.rstrip()
            self._say(pieces, shown)
            if final:
                self._text = ""
            return False
        (begin, end), marker = match.span(), match[0]
        known = marker in (*in_calls, *silent, thinks)
        said = self._text[:begin].rstrip() if known else self._text[:begin]
        self._space = self._text[len(said) : begin]
        self._say(pieces, said, begin)
        if calls and style is not None and tools is not None and marker == style.opening:
            self._begin_calls(style, tools)
            return True
        self._text = self._text[end - begin :]
        self._after_marker = self._after_marker or known
        self._called = self._called or marker in in_calls
        self._ended = self._ended or (calls and style is not None and marker == style.turn_end)
        self._around = self._around and marker != self._layout.around[1]
        if marker == thinks:
            self._state = self._thoughts
        return True

    def _begins_around(self, final: bool) -> bool | None:
        """Whether what is said begins with its marker; None: it still may."""
        begin, begun = self._layout.around[0], self._text.lstrip()
        if begin.startswith(begun) and begin != begun:
            if not final:
                return None
            self._text = "" if self._cut else self._text
        self._may_begin_around = False
        if not begun.startswith(begin):
            return False
        self._text, self._around, self._after_marker = begun[len(begin) :], True, True
        return True

    def _begins_bare_call(self, style: ToolFormat, tools: Tools, final: bool) -> bool | None:
        """Whether a call without an opening marker begins; None: it still may.

        Only an answer that begins with ``{``, or with the name of a tool, can be one. Where calls are constrained, they
        begin with the name of a tool.
        """
        begun = self._text.lstrip()
        call, begins = begun, begun.startswith(("{", PYTHON_TAG))
        if not begun:
            begins = None
        elif self._form.constrained or style.separator:
            call = begun.removeprefix(PYTHON_TAG).lstrip()
            begins = begins_with_name(call, style, tools)
        if begins:
            self._text, self._may_be_call = call, False
            self._begin_calls(style, tools)
            return True
        if not final and (begins is None or PYTHON_TAG.startswith(begun)):
            return None
        if final and self._cut and begun and (begins is None or PYTHON_TAG.startswith(begun)):
            self._text = ""
        self._may_be_call = False
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
        self._state = self._next
        return bool(self._text)

    def _calls(self, pieces: _Pieces, final: bool) -> bool:
        assert self._section is not None
        assert self._form.tools is not None
        section = self._section.read(self._text, final=False)
        if section is None:
            if not final:
                return False
            section = self._section.read(self._text, final=True)
            if section is None or (section.malformed and self._cut and self._may_be_cut_call()):
                self._text = ""
                return False
        self._state = self._next
        if section.malformed:
            self._say_malformed(pieces)
        else:
            calls = section.calls if self._form.tools.parallel else section.calls[:1]
            pieces.calls += calls
            pieces.deltas += [
                ToolCallDelta(n, call.id, call.name, call.arguments_json) for n, call in enumerate(calls, self._index)
            ]
            self._index += len(calls)
            self._text, self._called = self._text[section.end :], True
        return bool(self._text)

    def _may_be_cut_call(self) -> bool:
        """Whether what was cut short can be a call; without an opening marker it begins with the name of a tool."""
        style, tools = self._form.style, self._form.tools
        assert style is not None
        assert tools is not None
        if style.opening or self._text.startswith(PYTHON_TAG):
            return True
        return begins_with_name(self._text, style, tools) is not False

    def _say_malformed(self, pieces: _Pieces) -> None:
        """The marker is text, unless it is a control token; what follows it may hold calls again."""
        style = self._form.style
        assert style is not None
        if self._layout.headers is not None:
            self._text = self._text.partition(style.separator)[2]
            self._message, self._state = _Message(), self._body
            return
        if not style.opening:
            return
        opening = style.opening
        shown = not any(token in opening for token in self._form.special)
        self._say(pieces, self._space + opening if shown else self._space, len(opening))

    def _header(self, pieces: _Pieces, final: bool) -> bool:
        """Where a message may begin: its header tells what it is."""
        headers, begun = self._layout.headers, self._text.lstrip()
        assert headers is not None
        starts = tuple(start.lstrip() for start in headers.starts)
        if any(text.startswith(begun) and text != begun for text in (*headers.ends, *starts)):
            if not final:
                return False
            if self._cut:
                self._text = begun = ""
        if end := next((end for end in headers.ends if begun.startswith(end)), ""):
            self._text = begun[len(end) :]
            return True
        if not begun.startswith(starts):
            self._message, self._state, self._after_marker = _Message(), self._body, True
            return bool(begun)
        header, message, body = begun.partition(headers.message)
        if not message:
            if final:  # a header that was cut short says nothing
                self._text = ""
            return False
        channel, called = headers.read(header)
        style, tools = self._form.style, self._form.tools
        known = style is not None and tools is not None and called in tools.parameters
        if known and style is not None and tools is not None and (tools.parallel or not self._index):
            self._text = f"{style.opening}{called}{style.separator}{body}"
            self._begin_calls(style, tools)
            return True
        self._text, self._after_marker = body, True
        self._message, self._state = _Message(thinks=channel == headers.thoughts), self._body
        return True

    def _body(self, pieces: _Pieces, final: bool) -> bool:
        """A message that is no call, up to its end."""
        headers, message = self._layout.headers, self._message
        assert headers is not None
        self._drop_space()
        match, kept = self._search((*headers.ends, headers.begin, headers.channel, *self._form.special), final)
        shown = self._text[: match.start() if match else len(self._text) - kept]
        ends = match is not None and match[0] in (*headers.ends, headers.begin, headers.channel)
        shown = shown if match is not None and not ends else shown.rstrip()
        if shown:
            channel = pieces.reasoning if message.thinks else pieces.content
            channel.append(f"\n{shown}" if message.is_new and message.thinks in self._message_kinds else shown)
            self._message_kinds.add(message.thinks)
            message.is_new = False
        if match is None:
            self._text = "" if final else self._text[len(shown) :]
            return False
        self._text = self._text[
            match.start() if match[0] not in (*headers.ends, *self._form.special) else match.end() :
        ]
        if ends:
            self._state = self._header
        return True

    def _search(self, markers: Iterable[str], final: bool) -> tuple[re.Match[str] | None, int]:
        """The first marker in the text; else how many of the last characters may belong to one.

        At the end of the text those belong to it, unless it was cut.
        """
        texts = tuple(dict.fromkeys(filter(None, markers)))
        if not texts:
            return None, 0
        found, kept = _any_of(texts).search(self._text), _held(self._text, texts)
        is_first = found is not None and found.start() < len(self._text) - kept
        if is_first or (found is not None and final and not self._cut):
            return found, 0
        return None, kept if not final or self._cut else 0

    def _say(self, pieces: _Pieces, text: str, used: int | None = None) -> None:
        """Give out ``text`` as content, and go on after the first ``used`` characters, by default after it."""
        if text and not self._ended:
            self._said = True
            pieces.content.append(text)
        self._text = self._text[len(text) if used is None else used :]

    def _drop_space(self) -> None:
        """After a marker, white space says nothing."""
        if self._after_marker:
            self._text = self._text.lstrip()
            self._after_marker = not self._text


@dataclass(slots=True)
class _Message:
    """A message with a header."""

    thinks: bool = False
    is_new: bool = True


@lru_cache
def _any_of(texts: tuple[str, ...]) -> re.Pattern[str]:
    """The longest of ``texts`` that stands in a place."""
    return re.compile("|".join(map(re.escape, sorted(texts, key=len, reverse=True))))


def _held(text: str, markers: tuple[str, ...]) -> int:
    """How many of the last characters may belong to a marker of which more is to come, the longest such end."""
    longest = min(len(text), max(map(len, markers)) - 1)
    return next(
        (
            n
            for n in range(longest, 0, -1)
            if any(len(marker) > n and marker.startswith(text[-n:]) for marker in markers)
        ),
        0,
    )
