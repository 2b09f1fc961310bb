"""TemplateLimits: bounds the time and the memory that rendering a chat template may take.

Templates come with models and are not trusted. Python cannot interrupt an operation that runs in C, so what could make
much out of little (``"a" * 10**9``, ``replace``, ``center``, ``x ** y``) is estimated before it runs, everything
that results is added up, and the clock is read between any two steps.
"""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

_MAX_SECONDS = 5.0
_MAX_SIZE = 1 << 25
"""Characters that may come about, beside a multiple of what went in; an item of a list counts as several."""
_PER_INPUT = 64
_PER_ITEM = 16
_MAX_COUNT = 100_000
"""As large a number as an operation may be told: jinja2's own bound for a range."""
_COUNTED = frozenset("batch center expandtabs indent ljust rjust round slice to_bytes tojson truncate zfill".split())
"""The methods and filters that are told how many of something to make."""
_MAX_BITS = 1 << 12
_WIDE_FORMAT = re.compile(r"\d{5}|%[^A-Za-z%]*\*|\{[^{}]*\{")
"""A field of ten thousand characters or more, or one whose width is an argument."""


class LimitReached(Exception):  # noqa: N818 (raised and caught between two modules)
    """The template has to stop; the message says what it did, as in "ran for more than 5 seconds"."""


class TemplateLimits:
    """The account of one rendering; ``variables`` are what the template is given."""

    def __init__(self, variables: Mapping[str, Any], seconds: float = _MAX_SECONDS, size: int = _MAX_SIZE) -> None:
        self._seconds = seconds
        self._deadline = time.monotonic() + seconds
        self._weights: dict[int, tuple[object, int]] = {}
        self._left = self._size = size + _PER_INPUT * self._weight(dict(variables))

    def step(self) -> None:
        """Called between any two steps of the template."""
        if time.monotonic() > self._deadline:
            raise LimitReached(f"ran for more than {self._seconds:g} seconds")

    def keep(self, value: Any) -> Any:
        """``value``, which has just come about, added to the account.

        What it holds counts as often as it is held: ``[x, x]``, nested forty times, is small until it is printed.
        """
        counted: object = value
        if isinstance(counted, str):
            self._spend(len(counted))
        elif isinstance(counted, list | tuple | dict):
            self._spend(_PER_ITEM * len(cast(Sequence[Any], counted)))
            self._expect(self._weight(value))
        return value

    def join(self, texts: Iterable[str]) -> str:
        """The texts as one."""
        parts: list[str] = []
        for text in texts:
            self.step()
            self._spend(len(text))
            parts.append(text)
        return "".join(parts)

    def check_operator(self, operator: str, left: Any, right: Any) -> None:
        """Raise LimitReached where ``left operator right`` would be too large."""
        self.step()
        match operator, left, right:
            case "**", int(), int():
                self._bits(left.bit_length() * abs(right))
            case "*", int(), int():
                self._bits(left.bit_length() + right.bit_length())
            case "*", int(), _ if hasattr(right, "__len__"):
                self._expect(left * len(right))
            case "*", _, int() if hasattr(left, "__len__"):
                self._expect(right * len(left))
            case "%", str(), _:
                self._format(left, [right])
            case _:
                pass

    def check_call(self, name: str, subject: Any, arguments: Sequence[Any]) -> None:
        """Raise LimitReached where the method or filter ``name`` of ``subject`` would make too much."""
        self.step()
        counts = [n for n in arguments if isinstance(n, int)] if name in _COUNTED else []
        if any(abs(n) > _MAX_COUNT for n in counts):
            raise LimitReached(f"asked {name!r} for {max(counts, key=abs)} of something, more than {_MAX_COUNT}")
        match name, subject, arguments:
            case "replace", str(), [str(old), str(new), *_]:
                self._expect(len(subject) + subject.count(old) * len(new))
            case "join", str(), [parts]:
                self._expect(len(subject) * _length(parts) + self._weight(parts))
            case "join", _, [str(separator), *_]:
                self._expect(len(separator) * _length(subject) + self._weight(subject))
            case "format", str(), _:
                self._format(subject, arguments)
            case (("replace" | "join" | "indent" | "expandtabs" | "tojson" | "sum" | "translate" | "slice"), _, _):
                widest = max([1, *counts, *(self._weight(a) for a in arguments)])
                self._expect(self._weight(subject) * widest)
            case _:
                pass

    def _format(self, pattern: str, arguments: Sequence[Any]) -> None:
        if _WIDE_FORMAT.search(pattern):
            raise LimitReached("formats a field of more than 9999 characters, or of a width to be computed")
        fields = pattern.count("%") + pattern.count("{")
        self._expect(len(pattern) + fields * sum(self._weight(a) for a in arguments))

    def _bits(self, bits: int) -> None:
        if bits > _MAX_BITS:
            raise LimitReached(f"computes a number of more than {_MAX_BITS} bits")

    def _expect(self, size: int) -> None:
        if size > self._size:
            raise LimitReached(f"makes more than {self._size} characters")

    def _spend(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            raise LimitReached(f"makes more than {self._size} characters")

    def _weight(self, value: Any) -> int:
        """How many characters and items ``value`` holds, what it holds several times counted as often."""
        if isinstance(value, str):
            return len(value)
        if not isinstance(value, list | tuple | dict):
            return 1
        container = cast(Sequence[Any] | dict[Any, Any], value)
        known = self._weights.get(id(container))
        if known is None:
            parts = [*container, *container.values()] if isinstance(container, dict) else container
            # The container is kept with its weight, or its id might become another's.
            known = self._weights[id(container)] = (container, 1 + sum(map(self._weight, parts)))
        return known[1]


def _length(value: Any) -> int:
    return len(cast(Sequence[Any], value)) if hasattr(value, "__len__") else _MAX_COUNT
