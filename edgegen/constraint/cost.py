"""check_cost: bounds what a grammar may cost before it is compiled: its symbols, its expressions, its shortest texts.

llguidance takes time that grows with the square of a rule's symbols or of an expression's optional parts, and follows
forced text to its end at once, however often ``{20000}`` repeats it. So all of it is counted first, in every source
that is compiled, whatever kind of constraint it was made of.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, cast

from edgegen.constraint.schema_levels import target_of
from edgegen.errors import ConstraintError

MOST_SYMBOLS = 10_000
"""Of all rules of a grammar together."""
MOST_ALTERNATIVES = 2_000
"""Of one rule, or of brackets in it: llguidance follows no more at once."""
MOST_OPTIONAL = 500_000
"""Squares of the numbers of parts in a row that may all be empty: 700 of them take ten milliseconds in every step."""
MOST_TERMINAL_PARTS = 20_000
"""Texts and names in terminals, which become one automaton."""
MOST_CONDITIONS = 32
"""``&`` and ``~`` between terminals: each is compared with all others."""
MOST_PATTERNS = 100
"""``patternProperties``: each is compared with all others."""
MOST_QUANTIFIERS = 1_500
"""Of all regular expressions together: the time is quadratic in those of one."""
MOST_PARTS = 10_000
"""Objects, lists and names of properties of all JSON schemas together."""
MOST_PROPERTIES = 2_000
"""Properties of one object: the time is quadratic in them."""
MOST_FORCED = 1 << 14
"""Characters of the shortest text of a grammar, and of each of its parts: that many may be forced at once."""

Length = float
"""Characters of a shortest text; infinite where there is none."""

_LARK = re.compile(
    r"""(?P<skipped>//[^\n]*|\#[^\n]*|\s+|%ignore\b|%import\b)
    |(?P<json>%json\s*(?=[\[{]))
    |(?P<head>(?:(?<=\n)|^)[!?]?[A-Za-z_][\w-]*(?:\.-?\d+)?\s*(?:\[[^\n]*?\]\s*)?:)
    |(?P<text>"(?:\\.|[^"\\])*"i?)
    |(?P<regex>/(?:\\.|[^/\\\n])+/[imslux]*)
    |(?P<token><[^>\n]*>)
    |(?P<name>[A-Za-z_][\w-]*)
    |(?P<count>\{\s*(?P<least>\d*)\s*(?:,\s*\d*\s*)?\}|~\s*(?P<tilde>\d+)(?:\s*\.\.\s*\d+)?)
    |(?P<maybe>[?*])|(?P<more>\+)
    |(?P<open>[(\[])|(?P<close>\)|(?P<optional>\]))|(?P<alternative>\|)|(?P<condition>[&~])|(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_REGEX = re.compile(
    r"""(?P<open>\((?:\?(?:[:imsux-]+|P?<\w+>)+)?)|(?P<close>\))|(?P<alternative>\|)
    |(?P<count>\{\s*(?P<least>\d*)\s*(?:,\s*\d*\s*)?\}\??)|(?P<maybe>[?*]\??)|(?P<more>\+\??)
    |(?P<empty>[\^$]|\\[bBAz])
    |(?P<atom>\\x\{\w+\}|\\[pP]\{\w+\}|\\x\w\w|\\u\w{4}|\\.|\[\^?\]?(?:\\.|[^\]\\])*\]|.)""",
    re.VERBOSE | re.DOTALL,
)


def check_cost(source: str, name: str) -> None:
    """Check a source of llguidance's, which messages call ``name``, against every bound.

    Raises:
        ConstraintError: one of them is exceeded; it says which.
    """
    counts = _Counts(name)
    for grammar in json.loads(source)["grammars"]:
        if (lark := grammar.get("lark_grammar")) is not None:
            _LarkShape(lark, counts).check()
        if (schema := grammar.get("json_schema")) is not None:
            _SchemaShape(schema, counts).check()


def check_schema_cost(schemas: Iterable[object], name: str) -> None:
    """Check JSON schemas, together, before anything is made of them.

    Raises:
        ConstraintError: a bound is exceeded.
    """
    counts = _Counts(name)
    for schema in schemas:
        _SchemaShape(schema, counts).check()


def check_symbols(text: str, name: str) -> None:
    """Check how many words a grammar in GBNF has, before it is converted.

    Raises:
        ConstraintError: more than a grammar may have.
    """
    words = sum(1 for _ in re.finditer(r"[\w-]+", re.sub(r'"(?:\\.|[^"\\])*"', " x ", text)))
    if words > 2 * MOST_SYMBOLS:  # the rest is counted after it is converted
        raise _too_much(name, words, "words", 2 * MOST_SYMBOLS, "write fewer or shorter rules")


@dataclass
class _Counts:
    """The counts so far, in all parts of one constraint."""

    name: str
    totals: dict[str, int] = field(default_factory=dict[str, int])

    def add(self, what: str, most: int, advice: str, count: int = 1) -> None:
        total = self.totals[what] = self.totals.get(what, 0) + count
        if total > most:
            raise ConstraintError(f"{self.name} is too large: it has more than {most:,} {what}: {advice}")

    def symbol(self, *, terminal: bool) -> None:
        if terminal:
            self.add("parts of terminals", MOST_TERMINAL_PARTS, "have fewer alternatives")
        else:
            self.add("symbols", MOST_SYMBOLS, "have fewer alternatives, or make one terminal of them (in capitals)")

    def quantifier(self) -> None:
        self.add("quantifiers in regular expressions", MOST_QUANTIFIERS, "repeat a group with {n} instead")

    def condition(self) -> None:
        self.add("'&' and '~'", MOST_CONDITIONS, "each is compared with all others: have fewer")

    def pattern_property(self) -> None:
        self.add("names in patternProperties", MOST_PATTERNS, "each is compared with all others: have fewer")

    def alternatives(self, count: int) -> None:
        if count > MOST_ALTERNATIVES:
            advice = "make one terminal of them (in capitals), or several rules"
            raise _too_much(self.name, count, "alternatives in one place", MOST_ALTERNATIVES, advice)

    def optional(self, lengths: Iterable[Length]) -> None:
        """Count parts in a row that may all be empty."""
        for empty, parts in groupby(lengths, key=lambda length: not length):
            if empty and (count := sum(1 for _ in parts)) > 1:
                what = "optional parts in a row (their squares)"
                self.add(what, MOST_OPTIONAL, "repeat a group instead, or make one terminal of them", count**2)

    def forced(self, length: float) -> float:
        """``length``, of a shortest text."""
        if MOST_FORCED < length < math.inf:
            raise ConstraintError(
                f"{self.name} is too long: a part of it has no text of fewer than {length:,.0f} characters, and "
                f"{MOST_FORCED:,} are allowed: repeat less, or shorter texts"
            )
        return length


def _too_much(name: str, count: int, what: str, most: int, advice: str) -> ConstraintError:
    return ConstraintError(f"{name} is too large: it has {count:,} {what}, and {most:,} are allowed: {advice}")


@dataclass(eq=False)
class _Group:
    """Sequences of parts, one of which is taken; a part is a length, the name of a rule, or a repeated one."""

    sequences: list[list["Length | str | _Repeated"]] = field(default_factory=lambda: [[]])
    length: Length = 0.0


@dataclass(frozen=True)
class _Repeated:
    part: Length | str | _Group
    least: int


class _Expression:
    """The groups of an expression, put together from its parts as they come; brackets may nest at any depth."""

    def __init__(self, *, is_rule: bool = False) -> None:
        whole = _Group()
        self._is_rule = is_rule
        self.names = dict[str, None]()
        self._groups, self._open = [whole], [whole]

    def part(self, part: Length | str) -> None:
        self._open[-1].sequences[-1].append(part)
        if isinstance(part, str):
            self.names[part] = None

    def alternative(self) -> None:
        self._open[-1].sequences.append([])

    def open(self) -> None:
        self._groups.append(_Group())
        self._open.append(self._groups[-1])

    def close(self, *, optional: bool = False) -> None:
        if len(self._open) > 1:
            inner = self._open.pop()
            self._open[-1].sequences[-1].append(_Repeated(inner, 0 if optional else 1))

    def repeat(self, least: int) -> None:
        sequence = self._open[-1].sequences[-1]
        if sequence:
            part = sequence.pop()
            again = part if isinstance(part, _Repeated) else _Repeated(part, 1)
            sequence.append(_Repeated(again.part, min(again.least * least, MOST_FORCED + 1)))

    def length(self, counts: _Counts, rules: Mapping[str, Length]) -> Length:
        """The shortest text, by those of ``rules``; one that is not there is under way, and has none yet."""

        def of(part: Length | str | _Repeated) -> Length:
            match part:
                case str():
                    return rules.get(part, math.inf)
                case _Repeated(least=0):
                    return 0.0
                case _Repeated(part=_Group() as group, least=least):
                    return counts.forced(group.length * least)
                case _Repeated(part=float() | str() as inner, least=least):
                    return counts.forced(of(inner) * least)
                case _:
                    return cast(Length, part)

        for group in reversed(self._groups):  # inner ones were opened after those around them
            sequences = [[of(part) for part in parts] for parts in group.sequences]
            group.length = min(counts.forced(sum(lengths)) for lengths in sequences)
            if self._is_rule:
                counts.alternatives(len(sequences))
                for lengths in sequences:
                    counts.optional(lengths)
        return self._groups[0].length


def _quantified(token: re.Match[str], expression: _Expression) -> bool:
    """Whether it is a bracket, a quantifier or an alternative, which is then told to ``expression``."""
    match token.lastgroup:
        case "open":
            expression.open()
        case "close" | "optional":
            expression.close(optional=token[0] == "]")
        case "alternative":
            expression.alternative()
        case "maybe":
            expression.repeat(0)
        case "count" | "least" | "tilde":
            digits = token.groupdict().get("tilde") or token["least"] or "0"
            expression.repeat(min(int(digits[:12]), MOST_FORCED + 1))  # as many as count
        case "more":
            pass
        case _:
            return False
    return True


def _regex_length(pattern: str, counts: _Counts) -> Length:
    """The shortest text of a regular expression, whose quantifiers are counted."""
    expression = _Expression()
    for found in _REGEX.finditer(pattern):
        if _quantified(found, expression):
            if found.lastgroup not in ("open", "close", "alternative"):
                counts.quantifier()
        elif found.lastgroup == "atom":
            expression.part(1.0)
    return expression.length(counts, {})


class _LarkShape:
    """The rules of a Lark grammar, as far as their costs go; what is no Lark, llguidance refuses."""

    def __init__(self, lark: str, counts: _Counts) -> None:
        self._counts = counts
        self._rules = dict[str, _Expression]()
        expression, terminal, at = _Expression(), False, 0
        while at < len(lark) and (token := _LARK.match(lark, at)):
            at, text = token.end(), token[0]
            match token.lastgroup:
                case "head":
                    name = re.match(r"[!?]?([\w-]+)", text)
                    assert name is not None
                    terminal = name[1].lstrip("_")[:1].isupper()
                    expression = _Expression(is_rule=not terminal)
                    self._rules[name[1]] = expression
                case "json":
                    at = self._schema(lark, at, expression)
                case "text":
                    counts.symbol(terminal=terminal)
                    expression.part(float(len(text) - 2))
                case "regex":
                    counts.symbol(terminal=terminal)
                    expression.part(_regex_length(text[1 : text.rindex("/")], counts))
                case "name":
                    counts.symbol(terminal=terminal)
                    expression.part(text)
                case "token":
                    counts.symbol(terminal=terminal)
                    expression.part(1.0)
                case "condition":
                    counts.condition()
                case _:
                    _quantified(token, expression)

    def _schema(self, lark: str, at: int, expression: _Expression) -> int:
        """The end of the JSON schema that begins there."""
        try:
            schema, end = json.JSONDecoder().raw_decode(lark, at)
        except (ValueError, RecursionError):  # which llguidance refuses
            return at + 1
        self._counts.symbol(terminal=False)
        expression.part(_SchemaShape(schema, self._counts).check())
        return end

    def check(self) -> None:
        """Work out the shortest text of every rule, those that it names first."""
        lengths, begun = dict[str, Length](), set[str]()
        for first in self._rules:
            waiting = [first]
            while waiting:
                name = waiting[-1]
                if name in lengths or (rule := self._rules.get(name)) is None:
                    lengths.setdefault(name, 0.0)
                    waiting.pop()
                elif name in begun:
                    lengths[waiting.pop()] = rule.length(self._counts, lengths)
                else:
                    begun.add(name)
                    waiting += [one for one in rule.names if one not in begun]


class _SchemaShape:
    """The parts of a JSON schema, and the shortest texts of what it describes; levels are bounded elsewhere."""

    def __init__(self, schema: object, counts: _Counts) -> None:
        self._schema = schema
        self._counts = counts
        self._known = dict[int, Length]()

    def check(self) -> Length:
        self._count()
        begun, waiting = set[int](), [self._schema]
        while waiting:
            node = waiting[-1]
            if id(node) in begun:
                waiting.pop()
                if isinstance(node, dict):
                    content = cast(dict[str, Any], node)
                    self._known[id(content)] = self._counts.forced(max(self._lengths(content)))
            else:
                begun.add(id(node))
                waiting += [one for one in self._within(node) if id(one) not in begun]
        return self._length(self._schema)

    def _within(self, node: object) -> list[object]:
        """The objects and lists in ``node``, and what it refers to."""
        if isinstance(node, list):
            inside = cast(list[object], node)
        elif isinstance(node, dict):
            content = cast(dict[str, object], node)
            inside = [*content.values(), self._target(content.get("$ref"))]
        else:
            return []
        return [one for one in inside if isinstance(one, dict | list)]

    def _count(self) -> None:
        waiting: list[object] = [self._schema]
        while waiting:
            node = waiting.pop()
            if isinstance(node, dict):
                self._count_object(cast(Mapping[str, Any], node))
                waiting += cast(dict[str, Any], node).values()
            elif isinstance(node, list):
                self._parts(1)
                waiting += cast(list[object], node)

    def _count_object(self, node: Mapping[str, Any]) -> None:
        self._parts(1 + len(node.get("properties") or ()) if isinstance(node.get("properties"), dict) else 1)
        if len(node) > MOST_PROPERTIES:
            raise _too_much(
                self._counts.name, len(node), "names in one object", MOST_PROPERTIES, "have several objects"
            )
        if isinstance(named := node.get("patternProperties"), dict):
            for pattern in cast(dict[str, Any], named):
                self._counts.pattern_property()
                _regex_length(pattern, self._counts)

    def _parts(self, count: int) -> None:
        self._counts.add("objects, lists and properties in JSON schemas", MOST_PARTS, "describe less", count)

    def _length(self, node: object) -> Length:
        """The shortest text of what ``node`` describes; nothing where it is under way, in a circle."""
        return self._known.get(id(node), 0.0)

    def _lengths(self, node: Mapping[str, Any]) -> Iterator[Length]:
        """Yield the length that each keyword alone asks for."""
        if "const" in node:
            yield self._counts.forced(float(len(json.dumps(node["const"], ensure_ascii=False))))
        for value in _listed(node.get("enum")):
            self._counts.forced(float(len(value) if isinstance(value, str) else len(json.dumps(value))))
        yield _bound(node.get("minLength"))
        if isinstance(pattern := node.get("pattern"), str):
            yield _regex_length(pattern, self._counts)
        yield self._of_object(node)
        prefix = [self._length(one) for one in _listed(node.get("prefixItems"))]
        items = self._length(node.get("items"))
        least = _bound(node.get("minItems"))
        yield self._counts.forced(sum(prefix[: int(least)]) + max(0.0, least - len(prefix)) * max(items, 1.0))
        for one in _listed(node.get("allOf")):
            yield self._length(one)
        for keyword in ("anyOf", "oneOf"):
            if branches := _listed(node.get(keyword)):
                yield min(map(self._length, branches))
        yield self._length(self._target(node.get("$ref")))

    def _of_object(self, node: Mapping[str, Any]) -> Length:
        """The required properties, with their names, together."""
        properties, total = node.get("properties"), 0.0
        named = cast(dict[str, Any], properties) if isinstance(properties, dict) else {}
        required = {name for name in _listed(node.get("required")) if isinstance(name, str)}
        for name, value in named.items():
            length = self._length(value)
            self._counts.forced(float(len(name)))
            total += len(name) + length if name in required else 0.0
        return self._counts.forced(total)

    def _target(self, reference: object) -> object:
        return target_of(self._schema, reference) if isinstance(reference, str) else None


def _bound(value: object) -> Length:
    """A count of a schema; 0 where it is no count. llguidance refuses other values."""
    return float(value) if isinstance(value, int | float) and 0 <= value < math.inf else 0.0


def _listed(value: object) -> list[Any]:
    return cast(list[Any], value) if isinstance(value, list) else []
