"""SectionReader: reads the tool calls that a text holds, once they are whole and known to be well-formed."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from edgegen.chat.literals import SYNTAXES, MalformedError, UnfinishedError, read_call
from edgegen.chat.tool_formats import PYTHON_TAG, Tags, ToolFormat, is_text
from edgegen.chat.tools import ToolCall, Tools

_CALL_ID = re.compile(r"\[CALL_ID\].*", re.DOTALL)
_PLAIN_NAME = re.compile(r"(?:functions\.)?(.+?)(?::\d+)?")
PAIR = re.compile(r"\s*<arg_key>(?P<key>.*?)</arg_key>\s*<arg_value>(?P<value>.*?)</arg_value>\s*", re.DOTALL)
_STRUCTURE = re.compile(r'["{}\[\]]')
_STRING_END = re.compile(r'(?:[^"\\]|\\.)*"', re.DOTALL)
_BUILT_IN_CALL = re.compile(r"([\w-]+)\.call\((.*)\)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Section:
    """The calls that stand at the beginning of a text, and where they end in it.

    Attributes:
        malformed: they are not calls of the tools, and what stands there is text.
    """

    calls: tuple[ToolCall, ...]
    end: int
    malformed: bool = False


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
        start = self._style.body_start
        if not self._style.opening and text.startswith(PYTHON_TAG):
            start = len(PYTHON_TAG)
        if self._style.body in _UP_TO_CLOSING:
            return self._read_tags(text, start, final)
        if self._style.fence:
            begun = text[start:].lstrip()
            if not begun.startswith(self._style.fence):
                return self._malformed if final or not self._style.fence.startswith(begun) else None
            start = len(text) - len(begun) + len(self._style.fence)
        found = self._read_json(text, start, final)
        return self._malformed if found is None and final else found

    @property
    def _malformed(self) -> Section:
        return Section((), len(self._style.opening), malformed=True)

    def _read_tags(self, text: str, start: int, final: bool) -> Section | None:
        closing = self._style.closing
        end = text.find(closing, start)
        last = {"functions": self._style.tags.function_end, "python": "]", "braces": "}"}.get(self._style.body, "")
        while end >= 0 and not text[start:end].rstrip().endswith(last):
            end = text.find(closing, end + 1)
        if end < 0:
            if not final:
                return None
            if self._style.body == "pairs":  # more arguments may be missing
                return self._malformed
            end = len(text)
        named = _UP_TO_CLOSING[self._style.body](text[start:end], self._tools, self._style)
        return self._section(named, min(len(text), end + len(closing)))

    def _read_json(self, text: str, start: int, final: bool) -> Section | None:
        style, named = self._style, ""
        if not style.opening:
            return self._read_bare(text, start, final)
        if style.separator:
            at = text.find(style.separator, start)
            if at < 0:
                return None
            named, start = text[start:at], at + len(style.separator)
        if self._json is None:
            self._json = JsonEnd(start)
        end = self._json.find(text)
        if end is None:
            return self._malformed if self._json.is_none else None
        rest = text[end:]
        if style.closing:
            after = rest.lstrip()
            if after.startswith(style.closing):
                end += len(rest) - len(after) + len(style.closing)
            elif not style.closing.startswith(after):
                return self._malformed
            elif not final:
                return None
            else:
                end = len(text)
        return self._section(_read_value(text[start : self._json.end], named, style), end)

    def _read_bare(self, text: str, start: int, final: bool) -> Section | None:
        """An answer that is calls and nothing else, known as such at its end."""
        if not final:
            return None
        pairs, rest = list[tuple[str, Any]](), text[start:].strip()
        if self._style.separator:
            named, _, rest = rest.partition(self._style.separator)
            return self._section(_read_value(rest, named, self._style), len(text))
        if called := _BUILT_IN_CALL.fullmatch(rest):
            return self._section(_read_python(f"[{called[1]}({called[2]})]", self._tools, self._style), len(text))
        while rest:
            end = JsonEnd(0).find(rest)
            pairs += [("", None)] if end is None else _read_value(rest[:end], "", self._style)
            rest = rest[len(rest) if end is None else end :].lstrip("; \n\t")
        return self._section(pairs, len(text))

    def _section(self, pairs: Sequence[tuple[str, Any]], end: int) -> Section:
        """The calls up to ``end``; malformed where one of them is not one of the tools, or has no arguments."""
        known = self._tools.parameters
        called = [pair for pair in pairs if pair[0] in known or pair[0] not in self._style.no_call]
        if not pairs or any(name not in known or not isinstance(arguments, dict) for name, arguments in called):
            return self._malformed
        return Section(tuple(ToolCall.new(name, arguments) for name, arguments in called), end)


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
    in_list = style.body in ("list", "keyed", "python") and isinstance(value, list)
    entries: list[Any] = cast(list[Any], value) if in_list else [value]
    return [_entry(entry, style) for entry in entries] or [("", None)]


def _entry(entry: Any, style: ToolFormat) -> tuple[str, Any]:
    if not isinstance(entry, dict):
        return "", None
    fields = cast(dict[str, Any], entry)
    if style.body == "keyed":
        return next(iter(fields.items())) if len(fields) == 1 else ("", None)
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
    """An argument of one of ``functions``: the groups ``key`` and ``value``, and ``typed`` where the tags have it."""
    named = re.escape(tags.typed).replace(r"\{\}", "(?P<typed>true|false)") if tags.typed else re.escape(tags.named)
    begin = rf"\s*{re.escape(tags.parameter)}(?P<key>[^>\"\n]+){named}"
    pad = f"{tags.pad}?" if tags.pad else ""
    return re.compile(rf"{begin}{pad}(?P<value>.*?){pad}{re.escape(tags.parameter_end)}\s*", re.DOTALL)


def _read_pairs(text: str, tools: Tools, style: ToolFormat) -> list[tuple[str, Any]]:
    head, tag, rest = text.partition("<arg_key>")
    name = head.strip()
    return [(name, _arguments(PAIR, tag + rest, tools.parameters.get(name, {})))]


def _read_python(text: str, tools: Tools, style: ToolFormat) -> list[tuple[str, Any]]:
    """A list of Python's calls, or a single one; or JSON, which some models write in its place."""
    inner = text.strip()
    if inner.startswith("{") or inner.removeprefix("[").lstrip().startswith("{"):
        return _read_value(inner, "", style)
    return _read_literals(inner.removeprefix("[").removesuffix("]"), tools, style)


def _read_literals(text: str, tools: Tools, style: ToolFormat) -> list[tuple[str, Any]]:
    """Calls whose arguments are literals, with commas between them."""
    pairs, at, syntax = list[tuple[str, Any]](), 0, SYNTAXES["braces" if style.body == "braces" else "python"]
    try:
        while not pairs or text[at:].strip(", \n\t"):
            at += len(text[at:]) - len(text[at:].lstrip(", \n\t"))
            name, arguments, at = read_call(text, at, syntax)
            pairs.append((name, arguments))
    except (MalformedError, UnfinishedError):
        return [("", None)]
    return pairs


_UP_TO_CLOSING = {
    "functions": _read_functions,
    "pairs": _read_pairs,
    "python": _read_python,
    "braces": _read_literals,
}
"""Bodies that are read when the closing marker stands there."""


def _arguments(pattern: re.Pattern[str], text: str, schema: Mapping[str, Any]) -> dict[str, Any] | None:
    arguments, at = dict[str, Any](), 0
    while match := pattern.match(text, at):
        arguments |= typed_argument(match, schema)
        at = match.end()
    return None if text[at:].strip() else arguments


def typed_argument(found: re.Match[str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Key and value as they stand between tags: JSON if it can be, unless the tags or the schema call it a string."""
    groups = found.groupdict()
    key = groups["key"].strip()
    typed = groups.get("typed")
    text = is_text(schema, key) if typed is None else typed == "true"
    return {key: _typed(groups["value"], text)}


def _typed(value: str, text: bool) -> Any:
    if text:
        return value
    try:
        return json.loads(value, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return value


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is no JSON number")
