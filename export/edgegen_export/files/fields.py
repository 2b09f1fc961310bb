"""Fields: typed access to a mapping of a stranger's file, which lists everything that is wrong with it."""

from collections.abc import Mapping
from typing import Any, TypeGuard, TypeVar, cast

T = TypeVar("T")

LARGEST_NUMBER = 3e38
"""An upper limit for numbers; no real model exceeds it."""

_SHOWN = 60
"""Characters of a wrong value that a message shows."""

_KINDS: Mapping[type, tuple[str, str]] = {
    str: ("a text", "texts"),
    int: ("a whole number", "whole numbers"),
    float: ("a number", "numbers"),
    bool: ("true or false", "true or false"),
    list: ("a list", "lists"),
    dict: ("an object", "objects"),
}
"""Names in messages of a value of a type, and of several."""


class Fields:
    """Reads a mapping key by key. A value of a wrong type is a problem, and is taken for absent.

    ``prefix``: what the mapping's keys have in front of the names that are asked for.
    """

    def __init__(self, values: Mapping[str, Any], prefix: str = "") -> None:
        self.problems: list[str] = []
        self._values = values
        self._prefix = prefix
        self._read: set[str] = set()

    def value(self, key: str) -> Any:
        """Return the value of ``key``, unchecked; None where it is absent."""
        self._read.add(key)
        return self._values.get(self._prefix + key)

    def optional(self, key: str, kind: type[T]) -> T | None:
        """The value of ``key``, or None where it is absent or null."""
        value = self.value(key)
        if value is None or is_a(value, kind):
            return value if value is None or kind in (list, dict) else kind(value)  # type: ignore[call-arg]
        self.expected(key, name_of(kind), value)
        return None

    def get(self, key: str, kind: type[T], default: T) -> T:
        """The value of ``key``; ``default`` where it is absent or null."""
        value = self.optional(key, kind)
        return default if value is None else value

    def list_of(self, key: str, kind: type[T]) -> list[T]:
        """The list under ``key``, whose values are each a ``kind``; empty where it is absent or null."""
        value = self.value(key)
        if value is None:
            return []
        if not isinstance(value, list) or not all(is_a(each, kind) for each in cast(list[object], value)):
            self.expected(key, f"a list of {_KINDS[kind][1]}", cast(object, value))
            return []
        return cast(list[T], value)

    def expected(self, key: str, what: str, value: object) -> None:
        """Record that ``what`` should be under ``key`` instead of ``value``."""
        self.wrong(key, f"{what} expected, found {shown(value)}")

    def wrong(self, key: str, text: str) -> None:
        """Record what is wrong with the value of ``key``."""
        self.problems.append(f"{self._prefix}{key}: {text}")

    def ignore(self, *keys: str) -> None:
        """Mark keys that do not change the result as read."""
        self._read.update(keys)


def name_of(kind: type) -> str:
    """Return the name in messages of a value of this type."""
    return _KINDS[kind][0]


def is_a(value: object, kind: type[T]) -> TypeGuard[T]:
    """Whether a parsed value is a ``kind``: whole numbers are numbers; truth values, infinities and NaN are not."""
    if isinstance(value, bool) or kind is not float:
        return isinstance(value, kind) and isinstance(value, bool) == (kind is bool)
    return isinstance(value, int | float) and abs(value) < LARGEST_NUMBER


def shown(value: object) -> str:
    """A value as messages show it: the beginning of a long one."""
    text = repr(value)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."
