"""SectionReader: reads the tool calls that a text holds, once they are whole and known to be well-formed."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from edgegen.chat.tool_formats import PYTHON_TAG, Tags, ToolFormat, is_text
from edgegen.chat.tools import ToolCall, Tools

_CALL_ID = re.compile(r"\[CALL_ID\].*", re.DOTALL)
_PLAIN_NAME = re.compile(r"(?:functions\.)?(.+?)(?::\d+)?")
PAIR = re.compile(r"\s*<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>\s*", re.DOTALL)
_STRUCTURE = re.compile(r'["{}\[\]]')
_STRING_END = re.compile(r'(?:[^"\\]|\\.)*"', re.DOTALL)


@dataclass(frozen=True, slots=True)
class Section:
    """The calls that stand at the beginning of a text, and where they end in it; no calls: they are malformed."""

    calls: tuple[ToolCall, ...]
    end: int


class SectionReader:
    """Reads one section of calls from a text that grows: the same text and more at each call."""

    def __init__(self, style: ToolFormat, tools: Tools) -> None:
        self._style = style
        self._tools = tools
        self._json: JsonEnd | None = None

    def read(self, text: str, *, final: bool) -> Section | None:
        """The section that ``text``, which begins with the opening marker, holds; None: more is needed.

        ``final``: no more is to come.
        """
        start = len(self._style.opening)
        if not self._style.opening and text.startswith(PYTHON_TAG):
            start = len(PYTHON_TAG)
        if self._style.body in ("functions", "pairs"):
            return self._read_tags(text, start, final)
        found = self._read_json(text, start, final)
        return Section((), start) if found is None and final else found

    def _read_tags(self, text: str, start: int, final: bool) -> Section | None:
        closing = self._style.closing
        end = text.find(closing, start)
        last = self._style.tags.function_end
        while end >= 0 and self._style.body == "functions" and not text[start:end].rstrip().endswith(last):
            end = text.find(closing, end + 1)
        if end < 0:
            if not final:
                return None
            if self._style.body == "pairs":  # more arguments may be missing
                return Section((), start)
            end = len(text)
        read = _read_functions if self._style.body == "functions" else _read_pairs
        named = read(text[start:end], self._tools, self._style)
        return Section(self._calls(named), min(len(text), end + len(closing)))

    def _read_json(self, text: str, start: int, final: bool) -> Section | None:
        style, named = self._style, ""
        if style.separator:
            at = text.find(style.separator, start)
            if at < 0:
                return None
            named, start = text[start:at], at + len(style.separator)
        if self._json is None:
            self._json = JsonEnd(start)
        end = self._json.find(text)
        if end is None:
            return Section((), len(style.opening)) if self._json.is_none else None
        rest = text[end:]
        if style.closing:
            behind = rest.lstrip()
            if behind.startswith(style.closing):
                end += len(rest) - len(behind) + len(style.closing)
            elif not style.closing.startswith(behind):
                return Section((), len(style.opening))
            elif not final:
                return None
            else:
                end = len(text)
        elif not style.opening:
            return self._read_bare(text, start, final)
        return Section(self._calls(_read_value(text[start : self._json.end], named, style)), end)

    def _read_bare(self, text: str, start: int, final: bool) -> Section | None:
        """An answer that is calls and nothing else, known as such at its end."""
        if not final:
            return None
        pairs, rest = list[tuple[str, Any]](), text[start:].strip()
        while rest:
            end = JsonEnd(0).find(rest)
            pairs += [("", None)] if end is None else _read_value(rest[:end], "", self._style)
            rest = rest[len(rest) if end is None else end :].lstrip("; \n\t")
        calls = self._calls(pairs)
        return Section(calls, len(text) if calls else 0)

    def _calls(self, pairs: Sequence[tuple[str, Any]]) -> tuple[ToolCall, ...]:
        """The calls; none where one of them is none of the tools, or has no arguments."""
        whole = all(name in self._tools.parameters and isinstance(arguments, dict) for name, arguments in pairs)
        return tuple(ToolCall.new(name, arguments) for name, arguments in pairs) if whole else ()


class JsonEnd:
    """Finds where a JSON object or list ends, in a text that grows."""

    def __init__(self, start: int) -> None:
        self.end: int | None = None
        self.is_none = False
        self._at = start
        self._depth = 0
        self._begun = False

    def find(self, text: str) -> int | None:
        if self.end is not None or self.is_none:
            return self.end
        if not self._begun:
            while self._at < len(text) and text[self._at].isspace():
                self._at += 1
            if self._at == len(text):
                return None
            self._begun, self.is_none = True, text[self._at] not in "{["
            if self.is_none:
                return None
        while sign := _STRUCTURE.search(text, self._at):
            if sign[0] == '"':
                string = _STRING_END.match(text, sign.end())
                if string is None:
                    self._at = sign.start()
                    return None
                self._at = string.end()
                continue
            self._depth += 1 if sign[0] in "{[" else -1
            self._at = sign.end()
            if self._depth == 0:
                self.end = self._at
                return self.end
        self._at = len(text)
        return None


def _read_value(text: str, named: str, style: ToolFormat) -> list[tuple[str, Any]]:
    """Names and arguments; an empty name where they are malformed."""
    try:
        value: Any = json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return [("", None)]
    if style.body == "named":
        return [(called_name(_CALL_ID.sub("", named), style), value)]
    entries = cast(list[Any], value) if style.body == "list" and isinstance(value, list) else [value]
    return [_entry(entry, style) for entry in entries] or [("", None)]


def _entry(entry: Any, style: ToolFormat) -> tuple[str, Any]:
    if not isinstance(entry, dict):
        return "", None
    fields = cast(dict[str, Any], entry)
    name = fields.get(style.name_key)
    arguments: Any = fields.get(style.arguments_key, fields.get("arguments"))
    if isinstance(arguments, str):  # some models write JSON inside of JSON
        try:
            arguments = json.loads(arguments, parse_constant=_refuse)
        except (ValueError, RecursionError):
            return "", None
    return (name if isinstance(name, str) else ""), arguments


def called_name(head: str, style: ToolFormat) -> str:
    """The name of a ``named`` call, as it stands between the opening marker and the separator."""
    pattern = re.escape(style.name_text)
    for placeholder, matched in ((r"\{name\}", "(.+?)"), (r"\{n\}", r"\d+"), (r"\{id\}", ".*?")):
        pattern = pattern.replace(placeholder, matched)
    name = re.fullmatch(pattern, head.strip()) or _PLAIN_NAME.fullmatch(head.strip())
    return name[1] if name else ""


def _read_functions(text: str, tools: Tools, style: ToolFormat) -> list[tuple[str, Any]]:
    pairs, at = list[tuple[str, Any]](), 0
    function = re.compile(rf"{function_begin(style.tags)}(.*?){re.escape(style.tags.function_end)}\s*", re.DOTALL)
    while at < len(text) and (found := function.match(text, at)):
        name, at = found[1].strip(), found.end()
        pairs.append((name, _arguments(parameter(style.tags), found[2], tools.parameters.get(name, {}))))
    return pairs if pairs and at == len(text) else [("", None)]


def function_begin(tags: Tags) -> str:
    """A regular expression of what begins one of ``functions``."""
    return rf"\s*{re.escape(tags.function)}([^>\"\n]+){re.escape(tags.named)}"


def parameter(tags: Tags) -> re.Pattern[str]:
    """An argument of one of ``functions``."""
    begin, pad = (
        rf"\s*{re.escape(tags.parameter)}([^>\"\n]+){re.escape(tags.named)}",
        f"{tags.pad}?" if tags.pad else "",
    )
    return re.compile(rf"{begin}{pad}(.*?){pad}{re.escape(tags.parameter_end)}\s*", re.DOTALL)


def _read_pairs(text: str, tools: Tools, style: ToolFormat) -> list[tuple[str, Any]]:
    head, tag, rest = text.partition("<arg_key>")
    name = head.strip()
    return [(name, _arguments(PAIR, tag + rest, tools.parameters.get(name, {})))]


def _arguments(pattern: re.Pattern[str], text: str, schema: Mapping[str, Any]) -> dict[str, Any] | None:
    found, at = list[tuple[str, str]](), 0
    while match := pattern.match(text, at):
        found.append((match[1], match[2]))
        at = match.end()
    return None if text[at:].strip() else typed_arguments(found, schema)


def typed_arguments(found: Iterable[tuple[str, str]], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Keys, and values as they stand between tags: JSON if they can be, unless the schema calls them strings."""
    return {key.strip(): _typed(value, is_text(schema, key.strip())) for key, value in found}


def _typed(value: str, text: bool) -> Any:
    if text:
        return value
    try:
        return json.loads(value, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return value


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")
