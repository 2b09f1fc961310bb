"""OptionSet: a frozen dataclass of options that the table of options checks."""

from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields
from functools import cache
from typing import Any, Self, TypeVar

from edgegen.errors import OptionError, one_or_list
from edgegen.options.hints import refuse_unknown
from edgegen.options.table import OPTIONS, Option

Class = TypeVar("Class", bound=type[Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionSet:
    """Its fields are options of the table; None for any of them is its default.

    Raises:
        OptionError: a name is unknown, or values are out of range or contradict each other; all of them are listed.
    """

    def __new__(cls, **given: object) -> Self:
        refuse_unknown(given, [f.name for f in fields(cls)])
        return object.__new__(cls)

    def __post_init__(self) -> None:
        for f in fields(self):
            value = getattr(self, f.name)
            if value is not None:
                object.__setattr__(self, f.name, OPTIONS[f.name].kind.normalized(value))
            elif f.default_factory is not MISSING:
                object.__setattr__(self, f.name, f.default_factory())
            elif f.default is not None:
                object.__setattr__(self, f.name, f.default)
        self._resolve()
        if problems := self._problems() or self._contradictions():
            raise OptionError(one_or_list(problems))

    def _resolve(self) -> None:
        """Fill in what follows from other options."""

    def _problems(self) -> list[str]:
        """What is wrong with each value by itself."""
        return [
            problem
            for option in options_of(type(self))
            if (value := getattr(self, option.name)) is not None
            for problem in option.kind.problems(option.name, value)
        ]

    def _contradictions(self) -> list[str]:
        """What values that are right by themselves contradict."""
        return []


@cache
def options_of(options: type[OptionSet]) -> tuple[Option, ...]:
    """The rows of the table that are fields of a class, in the table's order."""
    names = {f.name for f in fields(options)}
    return tuple(option for name, option in OPTIONS.items() if name in names)


def documented(options: Class) -> Class:
    """A class of options whose docstring lists them, as the table explains them."""
    if options.__doc__:  # python -OO has none
        options.__doc__ += "\n" + "\n".join(_lines(options))
    return options


def _lines(options: type[OptionSet]) -> Iterator[str]:
    yield "    Attributes:"
    for option in options_of(options):
        yield f"        {option.name}: {' '.join(part for part in (option.help, option.note) if part)}"
