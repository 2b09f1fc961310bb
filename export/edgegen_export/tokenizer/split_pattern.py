"""SplitPattern: a pre-tokenizer's regular expression as a program, of the constructs that such expressions have.

Alternatives, sequences, groups, classes of characters, greedy quantifiers, letters of either case, and looking ahead at
one character. All others are refused by name.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from edgegen_export.tokenizer import character_classes
from edgegen_export.tokenizer.character_classes import Characters, between, complement, folded, members, of


class UnsupportedPatternError(Exception):
    """The expression has what is not known here; the text says what."""


class Step(NamedTuple):
    """One step of a program.

    ``character``: one of the class ``at`` is consumed. ``split``: to the next step, or else to the step ``at``.
    ``jump``: to the step ``at``. ``ahead`` and ``not_ahead``: the next character is, or is not, one of the class
    ``at``; at the end of the text there is none. ``match``: the end.
    """

    kind: Literal["character", "split", "jump", "ahead", "not_ahead", "match"]
    at: int = 0


_MOST_STEPS = 4096
_ESCAPES = {"r": "\r", "n": "\n", "t": "\t", "f": "\f", "v": "\v", "0": "\0"}
_PROPERTY = re.compile(r"\\[pP]\{\^?[A-Za-z_ ]+\}")
_COUNT = re.compile(r"\{(\d+)(,?)(\d*)\}")
_HEX = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|x\{([0-9a-fA-F]+)\})")
_FOLD_TOGETHER = {"ss", "st", "ff", "fi", "fl", "ij", "dz", "lj", "nj"}
"""Two letters that one character may stand for where case makes no difference."""


@dataclass(frozen=True, slots=True)
class SplitPattern:
    """``steps``, and the ``classes`` of characters that they name by number."""

    steps: tuple[Step, ...]
    classes: tuple[Characters, ...]

    @classmethod
    def parse(cls, regex: str) -> "SplitPattern":
        """Read a regular expression in Oniguruma's syntax.

        Raises:
            UnsupportedPatternError: it has what is not known here.
        """
        try:
            return _Parser(regex).pattern()
        except (IndexError, ValueError) as error:
            raise UnsupportedPatternError(f"the regular expression {regex!r}: {error}") from error

    @classmethod
    def one_of(cls, characters: Characters) -> "SplitPattern":
        """One character of a class."""
        return cls((Step("character", 0), Step("match")), (characters,))


class _Parser:
    def __init__(self, regex: str) -> None:
        self._text = regex
        self._at = 0
        self._classes: list[Characters] = []
        self._number_of: dict[bytes, int] = {}

    def pattern(self) -> SplitPattern:
        steps = self._alternatives(either_case=False)
        if self._at < len(self._text):
            raise self._refused()
        return SplitPattern((*steps, Step("match")), tuple(self._classes))

    def _alternatives(self, *, either_case: bool) -> list[Step]:
        """Steps whose places are counted from the first of them."""
        branches = [self._sequence(either_case=either_case)]
        while self._take("|"):
            branches.append(self._sequence(either_case=either_case))
        whole = branches.pop()
        for branch in reversed(branches):
            whole = [
                Step("split", len(branch) + 2),
                *_moved(branch, 1),
                Step("jump", len(branch) + 2 + len(whole)),
                *_moved(whole, len(branch) + 2),
            ]
        return whole

    def _sequence(self, *, either_case: bool) -> list[Step]:
        steps: list[Step] = []
        letters = ""
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            begin = self._at
            item = self._item(either_case=either_case)
            literal = self._text[begin : self._at]
            letters = (letters + literal.lower())[-2:] if either_case and len(literal) == 1 else ""
            if letters in _FOLD_TOGETHER:
                raise UnsupportedPatternError(f"{letters!r} in either case")
            item = self._repeated(item)
            steps += _moved(item, len(steps))
            if len(steps) > _MOST_STEPS:
                raise UnsupportedPatternError("an expression of so many steps")
        return steps

    def _item(self, *, either_case: bool) -> list[Step]:
        if self._take("("):
            return self._group(either_case=either_case)
        if self._text[self._at] in "^$.*+?{":
            raise self._refused()
        if self._take("["):
            found = self._bracket()
            if either_case:
                raise UnsupportedPatternError("a class in either case")
            return self._character(found)
        found = self._one()
        if isinstance(found, str):
            if either_case and not (found.isascii() and found.isprintable()):
                raise UnsupportedPatternError(f"{found!r} in either case")
            found = folded(found) if either_case and found.isalpha() else of(found)
        return self._character(found)

    def _group(self, *, either_case: bool) -> list[Step]:
        if self._take("?!") or self._take("?="):
            kind = "not_ahead" if self._text[self._at - 1] == "!" else "ahead"
            steps = self._alternatives(either_case=either_case)
            self._expect(")")
            if len(steps) != 1 or steps[0].kind != "character":
                raise UnsupportedPatternError("looking ahead at more than one character")
            return [Step(kind, steps[0].at)]
        if self._take("?i:"):
            either_case = True
        elif not self._take("?:") and self._text[self._at : self._at + 1] == "?":
            raise self._refused()
        steps = self._alternatives(either_case=either_case)
        self._expect(")")
        return steps

    def _repeated(self, item: list[Step]) -> list[Step]:
        least, most = 1, 1
        if self._take("?"):
            least, most = 0, 1
        elif self._take("*"):
            least, most = 0, None
        elif self._take("+"):
            least, most = 1, None
        elif count := _COUNT.match(self._text, self._at):
            self._at = count.end()
            least = int(count[1])
            most = least if not count[2] else int(count[3]) if count[3] else None
        else:
            return item
        if self._text[self._at : self._at + 1] in ("?", "+", "*"):
            raise UnsupportedPatternError("a lazy, possessive or repeated quantifier")
        if _may_be_empty(item):
            raise UnsupportedPatternError("a repeated part that may be empty")
        if len(item) * max(least, most or 0) > _MOST_STEPS or (most is not None and most < least):
            raise UnsupportedPatternError("a quantifier of so many")
        steps: list[Step] = []
        for _ in range(least):
            steps += _moved(item, len(steps))
        if most is None:
            # The loop: it, or on. After the last required repetition, it is tried again.
            begin = len(steps)
            steps += [Step("split", begin + len(item) + 2), *_moved(item, begin + 1), Step("jump", begin)]
            return steps
        end = len(steps) + (most - least) * (len(item) + 1)
        for _ in range(most - least):
            steps += [Step("split", end), *_moved(item, len(steps) + 1)]
        return steps

    def _bracket(self) -> Characters:
        inverted = self._take("^")
        found = np.zeros(character_classes.CODE_POINTS, np.bool_)
        while not self._take("]"):
            if self._at >= len(self._text) or self._text[self._at] == "[" or self._text.startswith("&&", self._at):
                raise self._refused()
            one = self._one()
            if isinstance(one, str) and self._text[self._at : self._at + 1] == "-" and self._text[self._at + 1] != "]":
                self._at += 1
                last = self._one()
                if not isinstance(last, str) or last < one:
                    raise self._refused()
                one = between(one, last)
            found |= of(one) if isinstance(one, str) else one
        return complement(found) if inverted else found

    def _one(self) -> str | Characters:
        """A character, or the class that an escape stands for."""
        if self._text[self._at] != "\\":
            self._at += 1
            return self._text[self._at - 1]
        if character := _HEX.match(self._text, self._at):
            self._at = character.end()
            return chr(int(next(filter(None, character.groups())), 16))
        if named := _PROPERTY.match(self._text, self._at):
            self._at = named.end()
            return members(named[0])
        letter = self._text[self._at + 1 : self._at + 2]
        self._at += 2
        if letter in ("s", "d", "w"):
            return members(f"\\{letter}")
        if letter in ("S", "D", "W"):
            return complement(members(f"\\{letter.lower()}"))
        if letter in _ESCAPES:
            return _ESCAPES[letter]
        if not letter or letter.isalnum():
            self._at -= 2
            raise self._refused()
        return letter

    def _character(self, characters: Characters) -> list[Step]:
        number = self._number_of.setdefault(np.packbits(characters).tobytes(), len(self._classes))
        if number == len(self._classes):
            self._classes.append(characters)
        return [Step("character", number)]

    def _take(self, text: str) -> bool:
        if not self._text.startswith(text, self._at):
            return False
        self._at += len(text)
        return True

    def _expect(self, text: str) -> None:
        if not self._take(text):
            raise self._refused()

    def _refused(self) -> UnsupportedPatternError:
        return UnsupportedPatternError(f"{self._text[self._at : self._at + 8]!r} in a regular expression")


def _moved(steps: Sequence[Step], by: int) -> list[Step]:
    """The steps, moved ``by`` places further on."""
    return [Step(step.kind, step.at + by) if step.kind in ("split", "jump") else step for step in steps]


def _may_be_empty(steps: Sequence[Step]) -> bool:
    """Whether the end can be reached without a character."""
    seen, todo = set[int](), [0]
    while todo:
        if (at := todo.pop()) in seen:
            continue
        seen.add(at)
        if at == len(steps):
            return True
        step = steps[at]
        if step.kind == "split":
            todo += [at + 1, step.at]
        elif step.kind == "jump":
            todo.append(step.at)
        elif step.kind != "character":
            todo.append(at + 1)
    return False
