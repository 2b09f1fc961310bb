"""GgufMetadata: typed values of a GGUF file's metadata; what is missing or of another type becomes a fault."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar, cast

import numpy as np

T = TypeVar("T", str, int, float)


class GgufMetadata:
    """``faults`` grows with every value that is not what was asked for."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values = values
        self.faults: list[str] = []

    def __contains__(self, key: str) -> bool:
        return key in self._values

    def text(self, key: str) -> str | None:
        """A string, or None where there is none."""
        return self._value(key, str, "text")

    def number(self, key: str) -> int | None:
        return self._value(key, int, "an integer")

    def flag(self, key: str) -> bool | None:
        value = _plain(self._values.get(key))
        if value is None or isinstance(value, bool):
            return value
        self.faults.append(f"{key} is {value!r}, not true or false")
        return None

    def texts(self, key: str) -> list[str]:
        """An array of strings, empty where there is none."""
        return self._array(key, str, "strings")

    def numbers(self, key: str) -> list[int]:
        return self._array(key, int, "integers")

    def scores(self, key: str) -> list[float]:
        """An array of floats (or integers)."""
        return [float(score) for score in self._array(key, float, "numbers")]

    def _value(self, key: str, kind: type[T], name: str) -> T | None:
        value = _plain(self._values.get(key))
        if value is None or (isinstance(value, kind) and not isinstance(value, bool)):
            return value
        self.faults.append(f"{key} is {value!r}, not {name}")
        return None

    def _array(self, key: str, kind: type[T], name: str) -> list[T]:
        values = _plain(self._values.get(key))
        if values is None:
            return []
        kinds = (float, int) if kind is float else kind
        if isinstance(values, str | bytes) or not isinstance(values, Sequence):
            self.faults.append(f"{key} is not an array of {name}")
            return []
        plain = [_plain(value) for value in cast(Sequence[Any], values)]
        if not all(isinstance(value, kinds) and not isinstance(value, bool) for value in plain):
            self.faults.append(f"{key} is not an array of {name}")
            return []
        return cast(list[T], plain)


def _plain(value: Any) -> Any:
    """NumPy's scalars and arrays as Python's own."""
    return cast(Any, value).tolist() if isinstance(value, np.ndarray | np.generic) else value
