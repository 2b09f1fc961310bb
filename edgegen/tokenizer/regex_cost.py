"""check_regex(): refuses regular expressions of a ``tokenizer.json`` that may take forever or much memory.

The tokenizers library matches them with Oniguruma, which goes back over a text for each way to match it. So a
repetition must have one way only to match what it repeats: of its automaton (Glushkov's) no two runs over the same
characters may part and meet again within a circle (Weber and Seidl, "On the degree of ambiguity of finite automata",
1991). What follows one another may repeat a few times only.
"""

import re
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import NamedTuple, TypeVar, cast
from unicodedata import category

_LONGEST = 4_000
"""Characters of an expression that is read whole; a longer one may not repeat at all."""
_LONGEST_OF_ALL = 8_000_000
_MOST_LEVELS = 100
_MOST_LOOPS, _MOST_OPTIONAL, _MOST_COUNT = 3, 16, 100_000
_FEW, _COUNTED = 4, 32
"""Repetitions that are not taken for many; repetitions that are told apart, of which more are taken for any number."""
_MOST_POSITIONS, _MOST_EDGES, _MOST_PAIRS = 2_000, 100_000, 100_000

_N = TypeVar("_N", bound=Hashable)

_ESCAPED = re.compile(
    r"\\(?:[pP]\{\^?[\w ]+\}|x\{[0-9a-fA-F ]+\}|x[0-9a-fA-F]{1,2}|u[0-9a-fA-F]{4}|0[0-7]{0,2}|.)", re.DOTALL
)
_CLASS = re.compile(r"\[(?:\\.|[^\]\\])*\]", re.DOTALL)
_COUNT = re.compile(r"\{(\d*)(,?)(\d*)\}")
_GROUP = re.compile(r"\?(?:[a-z]*(?:-[a-z]*)?:|=|!|<=|<!|>|<[A-Za-z_]\w*>)")
_FLAGS = re.compile(r"\?([a-z]*)(-[a-z]*)?\)")
_COMMENT = re.compile(r"\?#[^)]*\)")
_WIDTHLESS = frozenset("AzZbBGKyY")
_LITERAL = {"n": "\n", "t": "\t", "r": "\r", "f": "\f", "v": "\v", "a": "\a", "e": "\x1b"}


def check_regex(pattern: str) -> bool:
    """Whether ``pattern`` may match nothing at all; of one that is too long to tell, yes.

    Raises ``ValueError``, which says why: it may cost more than a text is long, by far.
    """
    if len(pattern) > _LONGEST:
        _check_long(pattern)
        return True
    automaton = _Automaton()
    whole = automaton.of(_Reader(pattern).read())
    if whole.loops > _MOST_LOOPS:
        raise ValueError(f"{whole.loops} repetitions follow one another, at most {_MOST_LOOPS} may")
    if whole.optional > _MOST_OPTIONAL:
        raise ValueError(f"{whole.optional} optional parts follow one another, at most {_MOST_OPTIONAL} may")
    automaton.check()
    return whole.empty


def _check_long(pattern: str) -> None:
    """Such as the trie of a vocabulary: alternatives, groups and ends of tokens, nothing that repeats."""
    if len(pattern) > _LONGEST_OF_ALL:
        raise ValueError(f"it has {len(pattern)} characters, at most {_LONGEST_OF_ALL} are allowed")
    plain = _CLASS.sub("x", _ESCAPED.sub("x", pattern))
    if "[" in plain:
        raise ValueError("a class is not closed, or has another one in it")
    bare = re.sub(r"\(\?[:=!]", "(", plain)
    if re.search(r"[*+{]|\?[^)|]", bare) or "(?" in bare:
        raise ValueError(f"it has {len(pattern)} characters, and one of more than {_LONGEST} may not repeat anything")
    depth = deepest = 0
    for bracket in re.findall(r"[()]", bare):
        depth += 1 if bracket == "(" else -1
        deepest = max(deepest, depth)
    if deepest > 10 * _MOST_LEVELS:
        raise ValueError(f"its brackets are nested {deepest} deep, at most {10 * _MOST_LEVELS} are allowed")


class _Node(NamedTuple):
    """A part of an expression. ``either``: one of ``parts``, else all of them in a row; without any it is one character
    of ``mask``, or nothing where that is None. ``around``: it is looked at only. ``least``, ``most``: how often."""

    parts: "tuple[_Node, ...]" = ()
    mask: int | None = None
    either: bool = False
    around: bool = False
    least: int = 1
    most: int | None = 1


@dataclass(frozen=True, slots=True)
class _Part:
    """Where matches of a part begin and end, and whether it matches nothing, too.

    ``loops``, ``optional``: parts in a row that repeat, or may be left out. ``count``: steps when it is compiled.
    """

    first: Sequence[int] = ()
    last: Sequence[int] = ()
    empty: bool = True
    loops: int = 0
    optional: int = 0
    count: int = 0


class _Automaton:
    """Glushkov's: a position for each character of the expression, and how often each follows another."""

    def __init__(self) -> None:
        self.masks: list[int] = []
        self.follow: list[Counter[int]] = []
        self._edges = 0

    def of(self, node: _Node) -> _Part:
        part = self._once(node)
        if (node.least, node.most) == (1, 1):
            return part
        least, most = node.least, node.most
        count = part.count * max(1, least, most or 0)
        if count > _MOST_COUNT:
            raise ValueError(f"it repeats {count} steps, at most {_MOST_COUNT} may be repeated")
        varies = most is None or most > least
        if part.empty and most is not None and most > 1:
            raise ValueError("a part that may be empty is repeated a number of times")
        joined = part
        for _ in range(min(least, _COUNTED) - 1):
            joined = self._joined(joined, part := self._once(node))
        if most is None or most > _COUNTED:
            if varies:
                self._connect(part.last, part.first)
        else:
            rest = _Part()
            for _ in range(most - max(least, 1)):
                rest = replace(self._joined(self._once(node), rest), empty=True)
            joined = self._joined(joined, rest)
        loops = max(1, part.loops) if most is None or most - least > _FEW else part.loops
        optional = max(int(varies), part.optional)
        return _Part(joined.first, joined.last, part.empty or least == 0, loops, optional, count)

    def _once(self, node: _Node) -> _Part:
        if not node.parts:
            return _Part(count=1) if node.mask is None else self._position(node.mask)
        found = self.of(node.parts[0])
        for each in node.parts[1:]:
            other = self.of(each)
            found = self._or(found, other) if node.either else self._joined(found, other)
        # What is only looked at takes no part in what is matched, but in the time.
        return _Part(loops=found.loops, optional=found.optional, count=found.count) if node.around else found

    def _or(self, one: _Part, other: _Part) -> _Part:
        return _Part(
            [*one.first, *other.first],
            [*one.last, *other.last],
            one.empty or other.empty,
            max(one.loops, other.loops),
            max(one.optional, other.optional),
            one.count + other.count,
        )

    def _joined(self, one: _Part, other: _Part) -> _Part:
        self._connect(one.last, other.first)
        return _Part(
            [*one.first, *other.first] if one.empty else one.first,
            [*other.last, *one.last] if other.empty else other.last,
            one.empty and other.empty,
            one.loops + other.loops,
            one.optional + other.optional,
            one.count + other.count,
        )

    def _connect(self, ends: Sequence[int], starts: Sequence[int]) -> None:
        self._edges += len(ends) * len(starts)
        if self._edges > _MOST_EDGES:
            raise ValueError("it is too large")
        for end in ends:
            self.follow[end].update(starts)

    def _position(self, mask: int) -> _Part:
        place = len(self.masks)
        if place >= _MOST_POSITIONS:
            raise ValueError("it is too large")
        self.masks.append(mask)
        self.follow.append(Counter())
        return _Part([place], [place], False, count=1)

    def check(self) -> None:
        """Raise ``ValueError`` where a text can be matched in a number of ways that doubles as it grows."""
        components = _components({p: list(follow) for p, follow in enumerate(self.follow)})
        for place, follow in enumerate(self.follow):
            if any(times > 1 and components[place] == components[after] for after, times in follow.items()):
                raise ValueError(_AMBIGUOUS)
        circles = Counter(components.values())
        inside = {p for p in range(len(self.follow)) if circles[components[p]] > 1}
        pairs = dict[tuple[int, int], list[tuple[int, int]]]()
        new = [(p, p) for p in inside]
        while new:
            pair = new.pop()
            if pair in pairs:
                continue
            if len(pairs) > _MOST_PAIRS:
                raise ValueError("it is too large")
            ours, theirs = ([after for after in self.follow[p] if after in inside] for p in pair)
            pairs[pair] = [(a, b) for a in ours for b in theirs if self.masks[a] & self.masks[b]]
            new += pairs[pair]
        together = _components(pairs)
        equal = {together[pair] for pair in pairs if pair[0] == pair[1]}
        if any(together[pair] in equal for pair in pairs if pair[0] != pair[1]):
            raise ValueError(_AMBIGUOUS)


_AMBIGUOUS = "what it repeats can match the same text in several ways, whose number doubles with each character"


class _Reader:
    """Reads Oniguruma's syntax. Classes of characters are bits of samples; what is not known stands for all."""

    def __init__(self, pattern: str) -> None:
        self._text = pattern
        self._at = 0
        self._level = 0
        self._folds = False
        self._samples = _samples(pattern)

    def read(self) -> _Node:
        """The whole expression; raises ``ValueError`` where it has what is not allowed."""
        whole = self._alternatives()
        if self._at < len(self._text):
            raise ValueError("a bracket is closed that was not opened")
        return whole

    def _alternatives(self) -> _Node:
        self._level += 1
        if self._level > _MOST_LEVELS:
            raise ValueError(f"its brackets are nested more than {_MOST_LEVELS} deep")
        folds = self._folds
        found = [self._sequence()]
        while self._next("|"):
            found.append(self._sequence())
        self._folds = folds
        self._level -= 1
        return _Node(tuple(found), either=True)

    def _sequence(self) -> _Node:
        nodes = list[_Node]()
        while self._at < len(self._text) and self._text[self._at] not in "|)":
            node = self._atom()
            while (bounds := self._bounds()) is not None:
                node = _Node((node,), least=bounds[0], most=bounds[1])
                if self._next("?") or self._next("+"):  # lazy, possessive: the same parts, in another order
                    continue
            nodes.append(node)
        return _Node(tuple(nodes))

    def _bounds(self) -> tuple[int, int | None] | None:
        """How often what stands before is repeated; None where no quantifier follows."""
        for mark, bounds in (("*", (0, None)), ("+", (1, None)), ("?", (0, 1))):
            if self._next(mark):
                return bounds
        if (match := _COUNT.match(self._text, self._at)) is None or not (match[1] or match[3]):
            return None
        self._at = match.end()
        least = int(match[1] or 0)
        most = int(match[3]) if match[3] else (None if match[2] else least)
        if max(least, most or 0) > _MOST_COUNT:
            raise ValueError(f"{match[0]} repeats too often")
        return least, most

    def _atom(self) -> _Node:
        character = self._text[self._at]
        if character == "(":
            self._at += 1
            return self._group()
        if character == "[":
            return _Node(mask=self._class())
        if character == "\\":
            return self._escape()
        self._at += 1
        if character in "^$":
            return _Node()
        if character in "*+?":
            raise ValueError("a repetition of nothing")
        return _Node(mask=self._everything if character == "." else self._mask_of(character))

    def _group(self) -> _Node:
        text = self._text
        if match := _COMMENT.match(text, self._at):
            self._at = match.end()
            return _Node()
        if match := _FLAGS.match(text, self._at):
            self._at = match.end()
            self._folds |= "i" in match[1]
            return _Node()
        around, folds = False, self._folds
        if text.startswith("?", self._at):
            if (match := _GROUP.match(text, self._at)) is None:
                raise ValueError(f"{text[self._at - 1 : self._at + 3]!r} is not allowed")
            self._at = match.end()
            around = match[0] in ("?=", "?!", "?<=", "?<!")
            self._folds |= match[0].endswith(":") and "i" in match[0].partition("-")[0]
        node = self._alternatives()
        self._folds = folds
        if not self._next(")"):
            raise ValueError("a bracket is not closed")
        return _Node((node,), around=around)

    def _escape(self) -> _Node:
        match = _ESCAPED.match(self._text, self._at)
        if match is None:
            raise ValueError("it ends with a backslash")
        self._at = match.end()
        letter = match[0][1]
        if letter in "123456789gk":
            raise ValueError("references to groups are not allowed")
        if letter in _WIDTHLESS:
            return _Node()
        return _Node(mask=self._mask_of_escape(match[0]))

    def _next(self, mark: str) -> bool:
        if self._text.startswith(mark, self._at):
            self._at += 1
            return True
        return False

    # Characters, as bits of samples.

    @property
    def _everything(self) -> int:
        return (1 << len(self._samples)) - 1

    def _mask_of(self, character: str) -> int:
        same = {character, character.lower(), character.upper()} if self._folds else {character}
        return sum(1 << n for n, sample in enumerate(self._samples) if sample in same)

    def _mask_of_escape(self, text: str) -> int:
        letter = text[1]
        if letter in "pP":
            name = text[3:-1]
            mask = self._property(name.removeprefix("^"))
            others = (letter == "P") != name.startswith("^")
            return self._everything if mask is None else mask ^ (self._everything if others else 0)
        if letter in "sSdDwWhH":
            test = _KINDS[letter.lower()]
            mask = sum(1 << n for n, sample in enumerate(self._samples) if test(sample))
            return mask if letter.islower() else mask ^ self._everything
        if letter in "RXNO":
            return self._everything
        return self._mask_of(_character(text))

    def _property(self, name: str) -> int | None:
        key = name.replace("_", "").replace(" ", "")
        if not re.fullmatch("L[ultmo]?|M[nce]?|N[dlo]?|P[cdseifo]?|S[mcko]?|Z[slp]?|C[cfson]?", key):
            return None
        return sum(1 << n for n, sample in enumerate(self._samples) if category(sample).startswith(key))

    def _class(self) -> int:
        """A class in brackets; with all characters where it cannot be told which."""
        self._at += 1
        negated = self._next("^")
        mask, start, meets = 0, self._at, list[int]()
        while self._at < len(self._text) and (self._text[self._at] != "]" or self._at == start):
            text = self._text
            if text.startswith("[:", self._at) and (end := text.find(":]", self._at)) > 0:
                self._at, mask = end + 2, self._everything
            elif text[self._at] == "[":
                self._level += 1
                if self._level > _MOST_LEVELS:
                    raise ValueError(f"its brackets are nested more than {_MOST_LEVELS} deep")
                mask |= self._class()
                self._level -= 1
            elif text.startswith("&&", self._at):
                self._at += 2
                meets, mask = [*meets, mask], 0
            else:
                mask |= self._range()
        if not self._next("]"):
            raise ValueError("a class is not closed")
        for other in meets:
            mask &= other
        return mask ^ self._everything if negated else mask

    def _range(self) -> int:
        first = self._one()
        if len(first) == 1 and self._text.startswith("-", self._at) and not self._text.startswith("-]", self._at):
            after = self._at
            self._at += 1
            if self._text[self._at : self._at + 1] not in ("[", ""):
                last = self._one()
                if len(last) == 1:
                    inside = range(ord(first), ord(last) + 1)
                    return sum(1 << n for n, sample in enumerate(self._samples) if self._is_in(sample, inside))
            self._at = after
        return self._mask_of(first) if len(first) == 1 else self._mask_of_escape(first)

    def _is_in(self, sample: str, inside: range) -> bool:
        forms = {sample, sample.lower(), sample.upper()} if self._folds else {sample}
        return any(len(form) == 1 and ord(form) in inside for form in forms)

    def _one(self) -> str:
        """The next character of a class, or an escape of several characters."""
        if self._text[self._at] != "\\":
            self._at += 1
            return self._text[self._at - 1]
        found = _ESCAPED.match(self._text, self._at)
        if found is None:
            raise ValueError("it ends with a backslash")
        self._at = found.end()
        return found[0] if found[0][1] in "pPsSdDwWhHRX" else _character(found[0])


def _components(edges: Mapping[_N, Sequence[_N]]) -> dict[_N, int]:
    """The number of each node's strongly connected component (Tarjan's algorithm, without recursion)."""
    order, low, components = dict[_N, int](), dict[_N, int](), dict[_N, int]()
    waiting = list[_N]()
    for root in edges:
        if root in order:
            continue
        work = [(root, iter(edges[root]))]
        order[root] = low[root] = len(order)
        waiting.append(root)
        while work:
            node, rest = work[-1]
            if (after := next(rest, None)) is not None:
                if after not in order:
                    order[after] = low[after] = len(order)
                    waiting.append(after)
                    work.append((after, iter(edges[after])))
                elif after not in components:
                    low[node] = min(low[node], order[after])
                continue
            work.pop()
            if work:
                low[work[-1][0]] = min(low[work[-1][0]], low[node])
            if low[node] == order[node]:
                while waiting:
                    member = waiting.pop()
                    components[member] = order[node]
                    if member == node:
                        break
    return components


def _character(escape: str) -> str:
    letter, digits = escape[1], escape[2:].strip("{} ")
    if letter in "xu0" and digits:
        number = int(digits.split()[0], 8 if letter == "0" else 16)
        return chr(number) if number < 0x110000 else "\0"
    return _LITERAL.get(letter, "\0" if letter == "0" else letter)


_KINDS: Mapping[str, Callable[[str], bool]] = {
    "s": str.isspace,
    "d": lambda character: category(character) == "Nd",
    "w": lambda character: category(character)[0] in "LMN" or character == "_",
    "h": lambda character: character in "0123456789abcdefABCDEF",
}


def _samples(pattern: str) -> list[str]:
    """Characters that stand for all: of ASCII, those of the expression and their neighbours, two of each category."""
    own = {chr(n) for c in set(pattern) for n in (ord(c) - 1, ord(c), ord(c) + 1) if 0 <= n < 0x110000}
    written = {
        _character(each) for each in cast(list[str], re.findall(r"\\[xu](?:\{[0-9a-fA-F]+\}|[0-9a-fA-F]+)", pattern))
    }
    return sorted({*map(chr, range(128)), *own, *written, *_of_categories()})


@cache
def _of_categories() -> frozenset[str]:
    found = dict[str, list[str]]()
    for number in (*range(128, 0x3000), 0x4E00, 0xAC00, 0xD800, 0xE000, 0x10400, 0x1F600):
        group = found.setdefault(category(chr(number)), [])
        if len(group) < 2:
            group.append(chr(number))
    return frozenset(character for group in found.values() for character in group)
