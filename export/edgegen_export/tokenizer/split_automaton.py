"""SplitAutomaton: the matches of a pre-tokenizer's regular expression, found with one move for each character.

A state is the steps of the expression's program that may come next, those that a backtracking matcher would try first
before the others. What ends a match drops all after it. A move knows the character that comes next, so that looking
ahead at one character costs no more.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from edgegen.tokenizer.compiled_format import ACCEPTS, DEAD, MOST_CLASSES
from edgegen_export.tokenizer.character_classes import CODE_POINTS
from edgegen_export.tokenizer.split_pattern import SplitPattern, UnsupportedPatternError

_MOST_STATES = 4096


@dataclass(frozen=True, slots=True)
class Alphabet:
    """Characters that no expression tells apart have one class.

    Attributes:
        class_of: by code point.
        member: for each pattern and each of its classes, which of these classes are in it.
    """

    class_of: NDArray[np.uint8]
    member: tuple[tuple[frozenset[int], ...], ...]
    size: int

    @classmethod
    def of(cls, patterns: Sequence[SplitPattern]) -> "Alphabet":
        """The alphabet of all ``patterns``.

        Raises:
            UnsupportedPatternError: they tell too many apart.
        """
        class_of = np.zeros(CODE_POINTS, np.uint16)
        for characters in (each for pattern in patterns for each in pattern.classes):
            ends = np.flatnonzero(np.diff(key := class_of * 2 + characters)) + 1
            runs = np.concatenate([[0], ends])
            kinds, numbers = np.unique(key[runs], return_inverse=True)
            if len(kinds) > MOST_CLASSES:
                raise UnsupportedPatternError("an expression of so many classes")
            class_of = np.repeat(numbers.astype(np.uint16), np.diff([*runs, CODE_POINTS]))
        size = int(class_of.max()) + 1
        one_of_each = [int(np.argmax(class_of == number)) for number in range(size)]  # faster than to sort a million
        member = tuple(
            tuple(frozenset(np.flatnonzero(characters[one_of_each]).tolist()) for characters in pattern.classes)
            for pattern in patterns
        )
        return cls(class_of.astype(np.uint8), member, size)


def moves_of(pattern: SplitPattern, member: Sequence[frozenset[int]], size: int) -> NDArray[np.uint16]:
    """The moves [states, size + 1] of an alphabet of ``size`` classes; the last is of the end of the text.

    Raises:
        UnsupportedPatternError: there are too many states, or a match may be empty.
    """
    states: list[tuple[int, ...]] = [(0,)]
    numbers = {states[0]: 0}
    rows: list[list[int]] = []
    for state in states:  # which grows
        row: list[int] = []
        for character in range(size + 1):
            following, accepts = _move(pattern, member, state, character)
            number = DEAD
            if following:
                number = numbers.setdefault(following, len(states))
                if number == len(states):
                    states.append(following)
            row.append(number | (ACCEPTS if accepts else 0))
        rows.append(row)
        if len(states) > _MOST_STATES:
            raise UnsupportedPatternError("an expression of so many states")
    moves = np.array(rows, np.uint16)
    if (moves[0] & ACCEPTS).any():
        raise UnsupportedPatternError("an expression that matches nothing at all")
    return moves


def _move(
    pattern: SplitPattern, member: Sequence[frozenset[int]], state: tuple[int, ...], character: int
) -> tuple[tuple[int, ...], bool]:
    """The state after ``character``, and whether a match ends before it."""
    following: dict[int, None] = {}
    seen = set[int]()
    todo = [*reversed(state)]
    while todo:
        if (at := todo.pop()) in seen:
            continue
        seen.add(at)
        kind, to = pattern.steps[at]
        if kind == "match":
            return tuple(following), True
        if kind == "character":
            if character in member[to]:
                following[at + 1] = None
        elif kind == "jump":
            todo.append(to)
        elif kind == "split":
            todo += [to, at + 1]
        elif (character in member[to]) == (kind == "ahead"):
            todo.append(at + 1)
    return tuple(following), False
