"""GgufMetadata: typed access to a GGUF file's metadata that collects problems."""

from collections.abc import Mapping
from typing import Any, TypeVar, cast

T = TypeVar("T", str, int, float)


class GgufMetadata:
    """``problems`` lists every value of another type than asked for."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self.problems: list[str] = []

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def text(self, key: str) -> str | None:
        """A string, or None if it is absent."""
        return self._value(key, str, "text")

    def number(self, key: str) -> int | None:
        return self._value(key, int, "an integer")

    def flag(self, key: str) -> bool | None:
        value = self._values.get(key)
        if value is None or isinstance(value, bool):
            return value
        self.problems.append(f"{key} is {value!r}, not true or false")
        return None

    def texts(self, key: str) -> list[str]:
        """An array of strings, empty if it is absent."""
        return self._array(key, str, "strings")

    def numbers(self, key: str) -> list[int]:
        return self._array(key, int, "integers")

    def scores(self, key: str) -> list[float]:
        """An array of floats (or integers)."""
        return [float(score) for score in self._array(key, float, "numbers")]

    def _value(self, key: str, kind: type[T], name: str) -> T | None:
        value = self._values.get(key)
        if value is None or (isinstance(value, kind) and not isinstance(value, bool)):
            return value
        self.problems.append(f"{key} is {value!r}, not {name}")
        return None

    def _array(self, key: str, kind: type[T], name: str) -> list[T]:
        values = self._values.get(key)
        if values is None:
            return []
        kinds = (float, int) if kind is float else kind
        items = cast(list[Any], values) if isinstance(values, list) else None
        if items is None or not all(isinstance(item, kinds) and not isinstance(item, bool) for item in items):
            self.problems.append(f"{key} is not an array of {name}")
            return []
        return items
