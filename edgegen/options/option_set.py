"""OptionSet: a frozen dataclass of options, which checks them."""

from collections.abc import Iterator
from dataclasses import MISSING, dataclass, fields, replace
from functools import cache
from typing import Any, Self, TypeVar

from edgegen.errors import OptionError, refuse_any
from edgegen.options.hints import refuse_unknown
from edgegen.options.option import Option

Class = TypeVar("Class", bound=type[Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class OptionSet:
    """Its fields are made by :func:`~edgegen.options.option.option`; None for any of them is its default.

    Raises:
        OptionError: a name is unknown, or values are out of range or contradict each other; all of them are listed.
    """

    def __new__(cls, **given: object) -> Self:
        refuse_unknown(given, [f.name for f in fields(cls)])
        return object.__new__(cls)

    def __post_init__(self) -> None:
        kinds = {option.name: option.kind for option in options_of(type(self))}
        for f in fields(self):
            value = getattr(self, f.name)
            if value is not None:
                object.__setattr__(self, f.name, kinds[f.name].normalized(value))
            elif f.default_factory is not MISSING:
                object.__setattr__(self, f.name, f.default_factory())
            elif f.default is not None:
                object.__setattr__(self, f.name, f.default)
        self._resolve()
        refuse_any(self._problems() or self._contradictions(), OptionError)

    def _resolve(self) -> None:
        """Fill in what follows from other options."""

    def _problems(self) -> list[str]:
        """Return what is wrong with each value by itself."""
        return [
            problem
            for option in options_of(type(self))
            if (value := getattr(self, option.name)) is not None
            for problem in option.kind.problems(option.name, value)
        ]

    def _contradictions(self) -> list[str]:
        """Return the contradictions of values that are right by themselves."""
        return []


@cache
def options_of(options: type[OptionSet]) -> tuple[Option, ...]:
    """The options of a class: its own, then those that it inherits, even where it gives them another default."""
    base = options.__base__
    inherited = options_of(base) if base is not None and issubclass(base, OptionSet) else ()
    known = {option.name for option in inherited}
    own = (replace(f.metadata["option"], name=f.name) for f in fields(options) if f.name not in known)
    return (*own, *inherited)


def documented(options: Class) -> Class:
    """A class of options whose docstring lists them, as the table explains them."""
    if options.__doc__:  # python -OO has none
        options.__doc__ += "\n" + "\n".join(_lines(options))
    return options


def _lines(options: type[OptionSet]) -> Iterator[str]:
    yield "    Attributes:"
    for option in options_of(options):
        yield f"        {option.name}: {' '.join(part for part in (option.help, option.note) if part)}"
