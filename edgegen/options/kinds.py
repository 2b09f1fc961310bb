"""Kinds of option values: what a value may be, how a shorter way to write it is read, and what is wrong with it."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from pathlib import Path
from re import fullmatch
from reprlib import repr as shortened
from typing import Any, ClassVar, cast

from edgegen.errors import OptionError
from edgegen.options.validation import boolean, functions, number, token_ids


class Kind(ABC):
    """The values that an option accepts; None is not one of them, it stands for an option that is left out."""

    several: ClassVar[bool] = False
    """Whether a value is a list, of which a flag that may be repeated has the parts."""

    secret: ClassVar[bool] = False
    """Whether no text of the options may show a value."""

    words: str
    """The text of ``spelled``, where a kind has no more to say."""

    @property
    def spelled(self) -> str:
        """Type and range in a few words, for the documentation."""
        return self.words

    def normalized(self, value: object) -> Any:
        """The value itself for a shorter way to write it; what is neither stays for the check."""
        return value

    @abstractmethod
    def problems(self, name: str, value: object) -> list[str]:
        """Return the problems of ``value``, one sentence each."""


@dataclass(frozen=True, slots=True, eq=False)
class Number(Kind):
    """A finite number from ``low`` to ``high``; ``above`` and ``below`` leave out the bound itself."""

    type: type[int] | type[float]
    low: float = -inf
    high: float = inf
    above: bool = False
    below: bool = False

    @property
    def spelled(self) -> str:
        if -inf < self.low and self.high < inf and not self.above and not self.below:
            return f"{self.type.__name__}, {self.low} to {self.high}"
        bounds = [f"{'>' if self.above else '≥'} {self.low}"] if self.low > -inf else []
        bounds += [f"{'<' if self.below else '≤'} {self.high}"] if self.high < inf else []
        return " ".join([self.type.__name__, ", ".join(bounds)]).strip()

    def problems(self, name: str, value: object) -> list[str]:
        return number(name, value, self.type, self.low, self.high, above=self.above, below=self.below)


class Bytes(Number):
    """A number of bytes; a flag may have a unit."""


class Switch(Kind):
    """True or False."""

    words = "bool"

    def problems(self, name: str, value: object) -> list[str]:
        return boolean(name, value)


@dataclass(frozen=True, slots=True, eq=False)
class OneOf(Kind):
    """One of a few values; ``expected`` begins the sentence about any other, where it is not their list."""

    values: tuple[object, ...]
    expected: str = ""

    @property
    def spelled(self) -> str:
        return _either(f"`{value!r}`" for value in self.values)

    def problems(self, name: str, value: object) -> list[str]:
        known = any(value == one and isinstance(value, bool) == isinstance(one, bool) for one in self.values)
        expected = self.expected or f"{_either(map(repr, self.values))}, not"
        return [] if known else [f"{name}: {expected} {shortened(value)}"]


def _either(words: Iterable[str]) -> str:
    *others, last = words
    return f"{', '.join(others)} or {last}"


class TokenId(Kind):
    """One token id."""

    words = "token id"

    def problems(self, name: str, value: object) -> list[str]:
        return token_ids(name, (value,))


class TokenIds(Kind):
    """A list of token ids; one id may stand for itself."""

    several = True

    words = "token id, or a list"

    def normalized(self, value: object) -> Any:
        return _several(value)

    def problems(self, name: str, value: object) -> list[str]:
        return token_ids(name, value)


class TokenSequences(Kind):
    """A list of lists of token ids."""

    words = "list of lists of token ids"

    def normalized(self, value: object) -> Any:
        return _tuples(value)

    def problems(self, name: str, value: object) -> list[str]:
        if not isinstance(value, tuple):
            return [f"{name}: a list of lists of token ids expected, found {shortened(value)}"]
        return [problem for ids in cast(tuple[object, ...], value) for problem in token_ids(name, ids, least=1)]


class Biases(Kind):
    """Mapping of token ids, or of token id sequences if ``sequences``, to numbers that are added to logits."""

    several = True

    def __init__(self, *, sequences: bool = False) -> None:
        self.sequences = sequences
        self.words = f"mapping of {'token id sequences' if sequences else 'token ids'} to floats"

    def normalized(self, value: object) -> Any:
        return _mapping(value) if self.sequences else value

    def problems(self, name: str, value: object) -> list[str]:
        if not isinstance(value, Mapping):
            return [f"{name}: a mapping of token ids to biases expected, found {shortened(value)}"]
        problems: list[str] = []
        for key, bias in cast(Mapping[object, object], value).items():
            problems += token_ids(name, key if self.sequences else (key,), least=1)
            if bias != float("-inf"):
                problems += number(f"{name} of {shortened(key)}", bias, float)
        return problems


class StartAndFactor(Kind):
    """A number of tokens, and a factor from there on."""

    words = "(int ≥ 0, float > 0)"

    def normalized(self, value: object) -> Any:
        return _tuples(value)

    def problems(self, name: str, value: object) -> list[str]:
        pair = cast(tuple[object, ...], value) if isinstance(value, tuple) else ()
        if len(pair) != 2:
            return [f"{name}: a start and a factor expected, found {shortened(cast(object, value))}"]
        start, factor = pair
        return [
            *number(f"the start of {name}", start, int, 0),
            *number(f"the factor of {name}", factor, float, 0, above=True),
        ]


class Functions(Kind):
    """A list of functions; one function may stand for itself if it may stand ``alone``."""

    def __init__(self, *, alone: bool = False) -> None:
        self.alone = alone
        self.words = "function, or a list" if alone else "list of functions"

    def normalized(self, value: object) -> Any:
        return _several(value) if self.alone else _tuples(value)

    def problems(self, name: str, value: object) -> list[str]:
        return functions(name, value)


class Text(Kind):
    """Any text."""

    words = "text"

    def problems(self, name: str, value: object) -> list[str]:
        return [] if isinstance(value, str) else [f"{name}: text expected, found {shortened(value)}"]


class Texts(Kind):
    """A list of texts; one text may stand for itself. ``problem``: what is wrong with a text; None if nothing is."""

    several = True

    def __init__(self, problem: Callable[[str], str | None] = lambda _: None) -> None:
        self.problem = problem

    words = "text, or a list"

    def normalized(self, value: object) -> Any:
        return _several(value)

    def problems(self, name: str, value: object) -> list[str]:
        return [
            f"{name}: {problem}"
            for text in cast(tuple[object, ...], value)
            if (problem := self.problem(text) if isinstance(text, str) else f"text expected, found {text!r}")
        ]


class StopPattern(Kind):
    """A regular expression that can be matched while text arrives."""

    words = "regular expression"

    def problems(self, name: str, value: object) -> list[str]:
        if not isinstance(value, str):
            return [f"{name}: text expected, found {shortened(value)}"]
        from edgegen.stop_regex import StopRegex  # takes long to import for what few requests have

        try:
            StopRegex.of(value)
        except OptionError as error:
            return [f"{name}: {error}"]
        return []


class Sha256(Kind):
    """A SHA-256 in hex."""

    words = "64 hex digits"

    def normalized(self, value: object) -> Any:
        return value.lower() if isinstance(value, str) else value

    def problems(self, name: str, value: object) -> list[str]:
        known = isinstance(value, str) and fullmatch("[0-9a-f]{64}", value)
        return [] if known else [f"{name}: a SHA-256 of 64 hex digits expected, found {shortened(value)}"]


class BundleName(Kind):
    """The name or path of a bundle."""

    words = "name or path"

    def problems(self, name: str, value: object) -> list[str]:
        known = isinstance(value, Path) or (isinstance(value, str) and value)
        return [] if known else [f"{name}: a bundle's name or path expected, found {shortened(value)}"]


class FilePath(Kind):
    """The path of a file that is read."""

    words = "path"

    def normalized(self, value: object) -> Any:
        return Path(value) if isinstance(value, str) else value

    def problems(self, name: str, value: object) -> list[str]:
        return [] if isinstance(value, Path) else [f"{name}: a file's path expected, found {shortened(value)}"]


class CheckedLater(Kind):
    """A value that only the model's tokenizer can check."""

    def __init__(self, words: str) -> None:
        self.words = words

    def problems(self, name: str, value: object) -> list[str]:
        return []


def asks_whole_numbers(kind: Kind) -> bool:
    """Whether every number in a value of ``kind`` is a whole one."""
    return (isinstance(kind, Number) and kind.type is int) or isinstance(kind, TokenId | TokenIds | TokenSequences)


def _several(value: Any) -> Any:
    return tuple(cast(list[Any], value)) if isinstance(value, list | tuple) else (value,)


def _tuples(value: Any) -> Any:
    """Tuples for lists, inner ones too."""
    return tuple(_tuples(v) for v in cast(list[Any], value)) if isinstance(value, list | tuple) else value


def _mapping(value: Any) -> Any:
    """A mapping for a list of pairs, as JSON has it."""
    pairs = _tuples(value)
    try:
        return dict(cast(Any, pairs)) if isinstance(pairs, tuple) else value
    except (TypeError, ValueError):
        return value
