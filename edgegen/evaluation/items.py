"""Evaluation items read from JSON lines: questions with choices, and pairs of sentences.

Names are those of published files. A question is ``ctx``, ``endings`` and ``label``, as in HellaSwag, or ``query`` (or
``context``), ``choices`` and ``gold``, as lm-evaluation-harness prepares it; a pair is ``sentence_good`` and
``sentence_bad``, as in BLiMP. Other keys are left alone.
"""

from collections.abc import Callable
from dataclasses import dataclass
from reprlib import repr as shortened
from typing import Any, Generic, TypeVar, cast

from edgegen.errors import UsageError, first_line, refuse_any
from edgegen.strict_json import json_object

Item = TypeVar("Item")

_CONTEXT = ("ctx", "query", "context")
_CHOICES = ("endings", "choices")
_ANSWER = ("label", "gold")
_MISSING = object()

_LISTED = 10
"""How many problems are told of one file: of a file of another kind, every line has one."""


@dataclass(frozen=True, slots=True)
class Question:
    """A context and what may follow it.

    Attributes:
        answer: which of the choices is right, counted from 0.
        line: where it stands in its file, counted from 1.
    """

    context: str
    choices: tuple[str, ...]
    answer: int
    line: int


@dataclass(frozen=True, slots=True)
class Pair:
    """Two sentences that differ in little, of which ``good`` is right; ``line`` as in :class:`Question`."""

    good: str
    bad: str
    line: int


@dataclass(frozen=True, slots=True)
class Records(Generic[Item]):
    """Contents of JSON lines.

    Attributes:
        items: one for each line that is not blank.
        problems: what is wrong with the lines that gave none, each with the line's number.
    """

    items: tuple[Item, ...]
    problems: tuple[str, ...]

    def whole(self) -> tuple[Item, ...]:
        """The items, if every line is valid.

        Raises:
            UsageError: some are; all are told.
        """
        refuse_any(self.problems, UsageError)
        return self.items


def read_questions(text: str, where: str) -> Records[Question]:
    """The questions that a text holds; ``where`` names it in the problems."""
    return _read(text, where, "question", _question)


def read_pairs(text: str, where: str) -> Records[Pair]:
    """The pairs that a text holds; ``where`` names it in the problems."""
    good, bad = ("sentence_good",), ("sentence_bad",)
    return _read(text, where, "pair", lambda record, line: Pair(record.text(good), record.text(bad), line))


def _read(text: str, where: str, what: str, item_of: "Callable[[_Record, int], Item]") -> Records[Item]:
    items, problems = list[Item](), list[str]()
    # Of all that Python calls the end of a line, JSON strings may hold every one but these.
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        if not line.strip():
            continue
        found: list[str] = []
        if (content := _object(line, found)) is not None:
            item = item_of(_Record(content, found), number)
            if not found:
                items.append(item)
        problems += [f"{where}, line {number}: {problem}." for problem in found]
    if not items and not problems:
        problems.append(f"{where} has no {what}: give one JSON object on each line.")
    if len(problems) > _LISTED:
        problems[_LISTED:] = [f"{where} has {len(problems) - _LISTED} more problems."]
    return Records(tuple(items), tuple(problems))


def _question(record: "_Record", line: int) -> Question:
    context, choices = record.text(_CONTEXT, empty=True), record.choices()
    return Question(context, choices, record.answer(len(choices)), line)


def _object(line: str, problems: list[str]) -> dict[str, Any] | None:
    try:
        return json_object(line, problems)
    except RecursionError as error:  # too many brackets
        problems.append(f"not JSON: {first_line(error)}")
        return None


class _Record:
    """The object of one line, read key by key; what is wrong with it goes to ``problems``."""

    def __init__(self, content: dict[str, Any], problems: list[str]) -> None:
        self._content = content
        self._problems = problems

    def text(self, names: tuple[str, ...], *, empty: bool = False) -> str:
        """The text under one of ``names``, which may be ``empty`` or not."""
        value = self._value(names)
        return "" if value is _MISSING else self._text(" or ".join(names), value, empty=empty)

    def choices(self) -> tuple[str, ...]:
        """The two texts or more that are to choose from."""
        value = self._value(_CHOICES)
        if value is _MISSING:
            return ()
        texts = cast(list[Any], value) if isinstance(value, list) else []
        if len(texts) < 2:
            self._problems.append(
                f"{' or '.join(_CHOICES)}: two texts or more expected, found {shortened(cast(Any, value))}"
            )
            return ()
        return tuple([self._text(f"choice {n}", one, empty=False) for n, one in enumerate(texts)])

    def answer(self, count: int) -> int:
        """Which of ``count`` choices is right; HellaSwag says so in a text."""
        value, name = self._value(_ANSWER), " or ".join(_ANSWER)
        if isinstance(value, str) and value.isascii() and value.isdigit() and len(value) < 10:
            value = int(value)
        if isinstance(value, int) and not isinstance(value, bool):
            if 0 <= value < count or not count:
                return value
            self._problems.append(f"{name}: {value} is not one of the {count} choices, which are counted from 0")
        elif value is not _MISSING:
            self._problems.append(f"{name}: the number of a choice expected, found {shortened(value)}")
        return 0

    def _text(self, name: str, value: object, *, empty: bool) -> str:
        if not isinstance(value, str):
            self._problems.append(f"{name}: a text expected, found {shortened(value)}")
            return ""
        if not (empty or value.strip()):
            self._problems.append(f"{name} is empty")
        if any("\ud800" <= letter <= "\udfff" for letter in value):
            self._problems.append(f"{name} is no Unicode text: it has half a character")
        return value

    def _value(self, names: tuple[str, ...]) -> Any:
        """Return the value under one of ``names``; ``_MISSING`` where not just one is there."""
        found = [name for name in names if name in self._content]
        if len(found) == 1:
            return self._content[found[0]]
        if found:
            self._problems.append(f"{' and '.join(found)} would say the same: keep one of them")
        else:
            self._problems.append(f"no {' or '.join(names)}, found {shortened([*self._content])}")
        return _MISSING
