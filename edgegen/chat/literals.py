"""Values as some models write them in calls: Python's literals, and those of ``key:<|"|>text<|"|>``."""

import ast
import re
from dataclasses import dataclass
from typing import Any

from edgegen.chat.tool_formats import QUOTE, BodyKind

_NUMBER = re.compile(r"[-+]?\d+(?:\.\d*)?(?:[eE][-+]?\d+)?")
_NUMBER_SO_FAR = re.compile(r"[-+]?\d[\d.eE+-]*")
_WORD = re.compile(r"[A-Za-z_]+")
_WORDS = {"true": True, "false": False, "null": None, "True": True, "False": False, "None": None}
_STRINGS = {quote: re.compile(rf"{quote}(?:[^{quote}\\]|\\.)*{quote}", re.DOTALL) for quote in "\"'"}
_BARE_KEY = re.compile(r"[^\s:,{}\[\]\"']+")
_SPACE = re.compile(r"\s*")
_MOST_LEVELS = 100
_MOST_DIGITS = 4000
"""Python reads integers of 4300 digits at most."""


class UnfinishedError(Exception):
    """The text ends within a value."""


class MalformedError(Exception):
    """The text is not a value."""


@dataclass(frozen=True, slots=True)
class CallSyntax:
    """How a call with such values is written.

    Attributes:
        begin: a regular expression of what stands before the arguments; its group is the name.
        assign: stands between the name of an argument and its value.
        end: stands after the last argument.
    """

    begin: re.Pattern[str]
    assign: str
    end: str

    @property
    def key(self) -> re.Pattern[str]:
        """The name of an argument, or the end of the arguments: then the group ``key`` is None."""
        assign, end = re.escape(self.assign), re.escape(self.end)
        return re.compile(rf"\s*(?:,\s*)?(?:(?P<key>[\w.-]+)\s*{assign}\s*|{end})")


SYNTAXES: dict[BodyKind, CallSyntax] = {
    "python": CallSyntax(re.compile(r"\s*([A-Za-z_][\w.-]*)\("), "=", ")"),
    "braces": CallSyntax(re.compile(r"\s*call:([\w.-]+)\{"), ":", "}"),
}


def read_call(text: str, at: int, syntax: CallSyntax) -> tuple[str, dict[str, Any], int]:
    """The call that begins at ``at``: its name, its arguments, and where it ends.

    Raises:
        MalformedError: it is not one.
        UnfinishedError: the text ends within it.
    """
    head = syntax.begin.match(text, at)
    if head is None:
        raise MalformedError
    arguments, at, key = dict[str, Any](), head.end(), syntax.key
    while True:
        found = key.match(text, at)
        if found is None:
            raise MalformedError
        if found["key"] is None:
            return head[1], arguments, found.end()
        arguments[found["key"]], at = read_value(text, found.end())


def read_value(text: str, at: int, level: int = 0) -> tuple[Any, int]:
    """The value that begins at ``at``, and where it ends.

    Raises:
        MalformedError: it is not one.
        UnfinishedError: the text ends within it, or more of it may come.
    """
    at = _space(text, at)
    if level > _MOST_LEVELS:
        raise MalformedError
    if text.startswith(QUOTE, at):
        end = text.find(QUOTE, at + len(QUOTE))
        if end < 0:
            raise UnfinishedError
        return text[at + len(QUOTE) : end], end + len(QUOTE)
    if QUOTE.startswith(text[at:]):
        raise UnfinishedError
    if text[at] in _STRINGS:
        return _string(text, at)
    if text[at] in "[(":
        return _list(text, at, level)
    if text[at] == "{":
        return _dict(text, at, level)
    match = _NUMBER_SO_FAR.match(text, at) or _WORD.match(text, at)
    if match is None:
        raise UnfinishedError if text[at:] in ("-", "+") else MalformedError
    if match.end() == len(text):
        raise UnfinishedError
    if match[0] in _WORDS:
        return _WORDS[match[0]], match.end()
    if not _NUMBER.fullmatch(match[0]):
        raise MalformedError
    whole = match[0].lstrip("+-").isdigit() and len(match[0]) < _MOST_DIGITS
    return (int if whole else float)(match[0]), match.end()


def _string(text: str, at: int) -> tuple[str, int]:
    match = _STRINGS[text[at]].match(text, at)
    if match is None:
        raise UnfinishedError
    try:
        value: object = ast.literal_eval(match[0].replace("\r", "\\r").replace("\n", "\\n"))
    except (ValueError, SyntaxError):
        raise MalformedError from None
    return str(value), match.end()


def _list(text: str, at: int, level: int) -> tuple[list[Any], int]:
    end, values, at = {"[": "]", "(": ")"}[text[at]], list[Any](), _space(text, at + 1)
    while text[at] != end:
        value, at = read_value(text, at, level + 1)
        values.append(value)
        at = _comma(text, at, end)
    return values, at + 1


def _dict(text: str, at: int, level: int) -> tuple[dict[str, Any], int]:
    values, at = dict[str, Any](), _space(text, at + 1)
    while text[at] != "}":
        if bare := _BARE_KEY.match(text, at) if not QUOTE.startswith(text[at : at + len(QUOTE)]) else None:
            key, at = bare[0], bare.end()
        else:
            named, at = read_value(text, at, level + 1)
            key = named if isinstance(named, str) else str(named)
        at = _space(text, at)
        if text[at] != ":":
            raise MalformedError
        values[key], at = read_value(text, at + 1, level + 1)
        at = _comma(text, at, "}")
    return values, at + 1


def _comma(text: str, at: int, end: str) -> int:
    """After a comma, or before ``end``."""
    at = _space(text, at)
    if text[at] == ",":
        return _space(text, at + 1)
    if text[at] != end:
        raise MalformedError
    return at


def _space(text: str, at: int) -> int:
    """After white space; there is more text."""
    found = _SPACE.match(text, at)
    assert found is not None
    if found.end() == len(text):
        raise UnfinishedError
    return found.end()
