"""CallStream: reads constrained tool calls while they are being written, piece by piece."""

import json
import re
from collections.abc import Generator
from functools import lru_cache
from typing import Any, cast

from edgegen.chat.literals import SYNTAXES, CallSyntax, MalformedError, UnfinishedError, read_value
from edgegen.chat.tool_formats import ToolFormat
from edgegen.chat.tool_sections import PAIR, JsonEnd, called_name, function_begin, parameter, typed_argument
from edgegen.chat.tools import ToolCall, ToolCallDelta, Tools, argument_json, new_call_id

_PAIRS_BEGIN = re.compile(r"\s*([^\s<]+)\s*(?=<)")
_LIST_GOES_ON = re.compile(r"\s*([,\]])")
_KEYED_BEGIN = re.compile(r'[\s\[]*\{\s*"([^"]*)"\s*:\s*(?=\{)')
_KEYED_END = re.compile(r"\s*\}\s*([,\]])")


class CallStream:
    """Reads one section of calls from a text that grows: the same text and more at each call.

    A constraint made the text: it cannot turn out to be malformed, and what does not match is not whole yet.

    Attributes:
        end: where the section ends, once it has.
        index: of the next call.
    """

    def __init__(self, style: ToolFormat, tools: Tools, index: int) -> None:
        self._style, self._tools, self.index = style, tools, index
        self.end: int | None = None
        self._text = ""
        self._at = style.body_start
        self._deltas: list[ToolCallDelta] = []
        self._calls: list[ToolCall] = []
        self._steps = self._section()

    def read(self, text: str) -> tuple[list[ToolCallDelta], list[ToolCall]]:
        """Return the deltas and calls that became known with the last of ``text``, which begins with the opening
        marker."""
        self._text, self._deltas, self._calls = text, [], []
        next(self._steps, None)
        return self._deltas, self._calls

    def _section(self) -> Generator[None]:
        style = self._style
        match style.body:
            case "object" if not style.opening:
                while True:
                    yield from self._entry()
            case "object":
                yield from self._entry()
            case "list":
                yield from self._next(_marker(style.fence))
                yield from self._entry()
                while (yield from self._next(_LIST_GOES_ON))[1] == ",":
                    yield from self._entry()
            case "keyed":
                goes_on = "["
                while goes_on != "]":
                    head = yield from self._next(_KEYED_BEGIN)
                    yield from self._json_arguments(head[1])
                    goes_on = (yield from self._next(_KEYED_END))[1]
            case "python":
                goes_on = "["
                while goes_on != "]":
                    yield from self._literal_call(SYNTAXES["python"])
                    goes_on = (yield from self._next(_LIST_GOES_ON))[1]
            case "braces":
                yield from self._literal_call(SYNTAXES["braces"])
            case "named":
                head = yield from self._next(_named(style.separator))
                yield from self._json_arguments(called_name(head[1], style))
            case "functions":
                end = rf"\s*{re.escape(style.tags.function_end)}"
                either = re.compile(f"{function_begin(style.tags)}|(?=\\s*{re.escape(style.closing)})")
                while (head := (yield from self._next(either)))[1] is not None:
                    yield from self._tagged_arguments(head[1].strip(), parameter(style.tags), end)
            case "pairs":
                head = yield from self._next(_PAIRS_BEGIN)
                yield from self._tagged_arguments(head[1], PAIR, rf"\s*(?={re.escape(style.closing)})")
        yield from self._next(_marker(style.closing))
        self.end = self._at

    def _next(self, pattern: re.Pattern[str]) -> Generator[None, None, re.Match[str]]:
        """Goes on after ``pattern``, once it is there."""
        while (match := pattern.match(self._text, self._at)) is None:
            yield
        self._at = match.end()
        return match

    def _entry(self) -> Generator[None]:
        """A JSON object of name and arguments."""
        style = self._style
        head = yield from self._next(
            _entry_begin("" if style.id_last else style.id_key, style.name_key, style.arguments_key)
        )
        yield from self._json_arguments(head[1])
        yield from self._next(_entry_end(style.id_key if style.id_last else ""))

    def _json_arguments(self, name: str) -> Generator[None]:
        """Arguments that are JSON: their text as it stands."""
        call_id, sent = self._begin(name), list[str]()
        finder = JsonEnd(self._at)
        while True:
            end = finder.find(self._text)
            piece = self._text[self._at : end]
            if not sent:
                piece = piece.lstrip()
            self._send(piece, sent)
            self._at = len(self._text) if end is None else end
            if end is not None:
                break
            yield
        text = "".join(sent)
        try:  # Python reads integers of 4300 digits at most
            arguments: Any = json.loads(text, parse_int=lambda digits: (int if len(digits) < 4000 else float)(digits))
        except (ValueError, RecursionError):  # deeper than Python reads: it has been streamed, and is no call
            arguments = None
        if isinstance(arguments, dict):
            self._calls.append(ToolCall(call_id, name, cast(dict[str, Any], arguments), text))
        self.index += 1

    def _tagged_arguments(self, name: str, pattern: re.Pattern[str], end: str) -> Generator[None]:
        """Arguments between tags, up to ``end``: each is given out when it is whole."""
        call_id, sent, arguments = self._begin(name), list[str](), dict[str, Any]()
        schema = self._tools.parameters.get(name, {})
        either = re.compile(f"{pattern.pattern}|{end}", re.DOTALL)
        while (found := (yield from self._next(either)))["key"] is not None:
            entry = typed_argument(found, schema)
            arguments |= entry
            self._send((", " if sent else "{") + argument_json(entry)[1:-1], sent)
        self._end(call_id, name, arguments, sent)

    def _literal_call(self, syntax: CallSyntax) -> Generator[None]:
        """A call whose arguments are literals: each is given out when it is whole."""
        name = (yield from self._next(re.compile(rf"[\s\[]*{syntax.begin.pattern}")))[1]
        call_id, sent, arguments, key = self._begin(name), list[str](), dict[str, Any](), syntax.key
        while (match := (yield from self._next(key)))["key"] is not None:
            while True:
                try:
                    value, self._at = read_value(self._text, self._at)
                    break
                except UnfinishedError:
                    yield
                except MalformedError:  # deeper than is read: it is no call
                    while True:
                        yield
            entry = {match["key"]: value}
            arguments |= entry
            self._send((", " if sent else "{") + argument_json(entry)[1:-1], sent)
        self._end(call_id, name, arguments, sent)

    def _end(self, call_id: str, name: str, arguments: dict[str, Any], sent: list[str]) -> None:
        self._send("}" if sent else "{}", sent)
        self._calls.append(ToolCall(call_id, name, arguments, "".join(sent)))
        self.index += 1

    def _begin(self, name: str) -> str:
        call_id = new_call_id()
        self._deltas.append(ToolCallDelta(self.index, call_id, name, ""))
        return call_id

    def _send(self, piece: str, sent: list[str]) -> None:
        if piece:
            sent.append(piece)
            self._deltas.append(ToolCallDelta(self.index, None, None, piece))


def begins_with_name(text: str, style: ToolFormat, tools: Tools) -> bool | None:
    """Whether a call without an opening marker begins, with a tool's name; None: it still may."""
    if style.separator:
        begins = [name + style.separator for name in tools.parameters]
        if any(map(text.startswith, begins)):
            return True
        return None if any(begin.startswith(text) for begin in begins) else False
    if begun := _name_begin(style.name_key).match(text):
        return begun[1] in tools.parameters
    compact = "".join(text.split())
    return None if any(f'{{"{style.name_key}":"{name}"'.startswith(compact) for name in tools.parameters) else False


@lru_cache
def _entry_begin(id_key: str, name_key: str, arguments_key: str) -> re.Pattern[str]:
    call_id = rf'"{re.escape(id_key)}"\s*:\s*"[^"]*"\s*,\s*' if id_key else ""
    name = rf'"{re.escape(name_key)}"\s*:\s*"([^"]*)"\s*,\s*'
    return re.compile(rf'[\s;\[]*\{{\s*{call_id}{name}"{re.escape(arguments_key)}"\s*:\s*(?=\{{)')


@lru_cache
def _entry_end(id_key: str) -> re.Pattern[str]:
    call_id = rf'(?:,\s*"{re.escape(id_key)}"\s*:\s*"[^"]*"\s*)?' if id_key else ""
    return re.compile(rf"\s*{call_id}\}}")


@lru_cache
def _name_begin(name_key: str) -> re.Pattern[str]:
    return re.compile(rf'\{{\s*"{re.escape(name_key)}"\s*:\s*"([^"]*)"')


@lru_cache
def _named(separator: str) -> re.Pattern[str]:
    return re.compile(rf"(.*?){re.escape(separator)}\s*(?=\{{)", re.DOTALL)


@lru_cache
def _marker(text: str) -> re.Pattern[str]:
    return re.compile(rf"\s*{re.escape(text)}" if text else "")
