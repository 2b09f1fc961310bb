"""Which characters a class of a regular expression has, in the version of Unicode that the tokenizers library knows."""

from collections.abc import Callable, Iterable
from functools import cache
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

Characters = NDArray[np.bool_]
"""Of each code point, whether it is in the class."""

CODE_POINTS = 0x110000
_SURROGATES = range(0xD800, 0xE000)
_ASSIGNED = (range(0xD800), range(0xE000, 0x33480), range(0xE0000, 0xE1000))
"""Where characters have properties of their own. The others are alike, as one of every ``_STEP`` shows."""
_STEP = 997
_PIECE = 1 << 14
"""Characters that the library is asked of at once: it answers with objects for each span."""


@cache
def members(regex: str) -> Characters:
    """The characters that ``regex``, a class, matches.

    Raises:
        ValueError: the library does not read it.
    """
    from tokenizers import Regex, pre_tokenizers

    library = cast(Any, pre_tokenizers)
    try:
        splitter = library.Split(cast(Any, Regex)(f"(?:{regex})+"), "removed")
    except Exception as error:  # the library documents no narrower class
        raise ValueError(f"{regex} is no class of characters: {error}") from error
    return _asked(lambda text: [span for _, span in splitter.pre_tokenize_str(text)], inverted=True)


@cache
def folded(letter: str) -> Characters:
    """The characters that ``letter``, of ASCII, stands for where case makes no difference."""
    from tokenizers import Regex, pre_tokenizers

    splitter = cast(Any, pre_tokenizers).Split(cast(Any, Regex)(f"(?i:{letter})"), "removed")
    candidates = map(chr, np.flatnonzero(members("(?i:[a-z])")).tolist())
    return of(*(character for character in candidates if not splitter.pre_tokenize_str(character)))


@cache
def digits() -> Characters:
    """Return the characters that the library's ``Digits`` splits off."""
    from tokenizers import pre_tokenizers

    splitter = cast(Any, pre_tokenizers).Digits(individual_digits=False)
    # The first character is no digit, and pieces alternate.
    return _asked(lambda text: [span for _, span in splitter.pre_tokenize_str(text)][1::2], inverted=False)


def of(*characters: str) -> Characters:
    """A class of these characters."""
    found = np.zeros(CODE_POINTS, np.bool_)
    found[[*map(ord, characters)]] = True
    return found


def between(first: str, last: str) -> Characters:
    """A class of the characters from ``first`` to ``last``."""
    found = np.zeros(CODE_POINTS, np.bool_)
    found[ord(first) : ord(last) + 1] = True
    found[_SURROGATES.start : _SURROGATES.stop] = False
    return found


def complement(characters: Characters) -> Characters:
    """All others."""
    others = ~characters
    others[_SURROGATES.start : _SURROGATES.stop] = False
    return others


def _asked(spans_of: Callable[[str], Iterable[tuple[int, int]]], *, inverted: bool) -> Characters:
    """The characters in the spans that ``spans_of`` a text says, or all others."""
    found = np.zeros(CODE_POINTS, np.bool_)
    for step in (_STEP, 1):
        asked, rest, text = _question(step)
        for first in range(0, len(text), _PIECE):
            piece = "\0" + text[first : first + _PIECE]
            inside = np.full(len(piece), inverted)
            for start, end in spans_of(piece):
                inside[start:end] = not inverted
            found[asked[first : first + _PIECE]] = inside[1:]
        of_rest = found[rest[::step]]
        if of_rest.all() or not of_rest.any():
            found[rest] = of_rest[0]
            break
    return found


@cache
def _question(step: int) -> tuple[NDArray[np.int64], NDArray[np.int64], str]:
    """The code points that the library is asked of, those of which it is asked one of every ``step``, and the text."""
    is_rest = np.ones(CODE_POINTS, np.bool_)
    for part in (*_ASSIGNED, _SURROGATES):
        is_rest[part.start : part.stop] = False
    rest = np.flatnonzero(is_rest)
    asked = np.concatenate([*(np.arange(part.start, part.stop) for part in _ASSIGNED), rest[::step]])
    return asked, rest, "".join(map(chr, asked.tolist()))
