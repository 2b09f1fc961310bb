"""Grammar: constrains the output to a context-free grammar, in llguidance's Lark or llama.cpp's GBNF."""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

from edgegen.constraint.constraint import check_size
from edgegen.constraint.cost import check_symbols
from edgegen.constraint.schema_levels import check_levels
from edgegen.errors import ConstraintError, did_you_mean

GrammarSyntax = Literal["lark", "gbnf"]

_GBNF_PARTS = re.compile(r'("(?:\\.|[^"\\])*")|(\[(?:\\.|[^\]\\])*\])|#[^\n]*|([A-Za-z0-9_-]+)', re.DOTALL)
_LARK_PARTS = re.compile(
    r'"(?:\\.|[^"\\])*"(?:\s*:)?|//[^\n]*|#[^\n]*|/(?:\\.|[^/\\\n])+/|(:)|([(\[{])|([)\]}])', re.DOTALL
)
"""Texts (a JSON key with its colon), comments and expressions; or a rule's colon, an opening, a closing bracket."""

_SCHEMA = re.compile(r"%json\s*(?=\{)")

_MAX_LEVELS = 2_000
"""Rules, and the brackets that stand in one another within each. llguidance follows them on the stack, which a chain of
3,500 rules, or of 300 with 25 brackets in each, overflows: that would end the process."""

_CODE_POINT = re.compile(r"\\(\\|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8})")


@dataclass(frozen=True)
class Grammar:
    """A grammar whose texts begin at rule ``start`` (Lark) or ``root`` (GBNF).

    Lark is llguidance's: terminals are in capitals and match as much as they can, and ``%json`` takes in a
    schema. GBNF is converted to it. A GBNF rule that calls no recursive rule becomes one terminal and is
    exact; around recursive ones each piece takes as much as it can and gives nothing back, so that
    ``expr ::= [a-z]+ "a" | "(" expr ")"`` never gets past its letters.
    """

    name = "the grammar"

    text: str
    syntax: GrammarSyntax | None = field(default=None)
    """None finds out: GBNF has ``::=``."""

    def __post_init__(self) -> None:
        if self.syntax not in (None, "lark", "gbnf"):
            hint = did_you_mean(str(self.syntax), ("lark", "gbnf"))
            raise ConstraintError(f"a grammar's syntax is lark or gbnf, not {self.syntax!r}{hint}")
        check_size("the grammar", self.text)
        if not self.text.strip():
            raise ConstraintError("the grammar is empty: it needs a rule 'start' (Lark) or 'root' (GBNF)")

    def source(self) -> str:
        syntax = self.syntax or ("gbnf" if re.search(r"(?m)^\s*[\w-]+\s*::=", self.text) else "lark")
        if syntax == "gbnf":
            check_symbols(self.text, self.name)
        lark = _lark_of(self.text) if syntax == "gbnf" else self.text
        _check_levels(lark)
        return json.dumps({"grammars": [{"lark_grammar": lark}]})

    def explain(self, complaint: str) -> str:
        return complaint


def _check_levels(lark: str) -> None:
    """Limit how deep a Lark grammar is nested: its rules, and the brackets and schemas in them.

    Raises:
        ConstraintError: the rules and their brackets could overflow the stack of llguidance.
    """
    levels = depth = deepest = 0
    for part in _LARK_PARTS.finditer(lark):
        if part[1]:
            levels, depth, deepest = levels + 1 + deepest, 0, 0
        elif part[2]:
            depth += 1
            deepest = max(deepest, depth)
        elif part[3]:
            depth = max(depth - 1, 0)
    levels += deepest + sum(map(check_levels, _schemas(lark)))
    if levels > _MAX_LEVELS:
        raise _too_deep(levels)


def _too_deep(levels: int) -> ConstraintError:
    return ConstraintError(
        f"the grammar is too deep: its rules, and the brackets nested in each, make {levels:,} levels, and "
        f"{_MAX_LEVELS:,} are allowed: write fewer rules, with alternatives in one"
    )


def _schemas(lark: str) -> Iterator[object]:
    """The JSON schemas within a grammar; what is no JSON, llguidance refuses."""
    for place in _SCHEMA.finditer(lark):
        with suppress(ValueError):
            yield json.JSONDecoder().raw_decode(lark, place.end())[0]


def _lark_of(gbnf: str) -> str:
    """GBNF as Lark, by llguidance's converter.

    Two of its habits are cured before: it makes one terminal of every rule that it can but for the first, so
    another goes first; and what it makes of an escaped code point is not Lark.
    """
    from llguidance.gbnf_to_lark import gbnf_to_lark

    def prepare(part: re.Match[str]) -> str:
        text, letters, name = part.groups()
        if name:
            return "edgegen-root" if name == "root" else name
        if text or letters:
            return _CODE_POINT.sub(_character, part[0])
        return ""

    prepared = _GBNF_PARTS.sub(prepare, gbnf)
    if (rules := prepared.count("::=")) > _MAX_LEVELS:  # the converter would take minutes
        raise _too_deep(rules)
    try:
        return gbnf_to_lark("root ::= edgegen-root\n" + prepared)
    except Exception as error:  # the converter raises plain exceptions
        raise ConstraintError(f"the grammar is not GBNF: {str(error).replace('edgegen-root', 'root')}") from error


def _character(escape: re.Match[str]) -> str:
    """The character of an escape, where it needs none; the escape as it is otherwise."""
    if escape[1] == "\\":
        return escape[0]
    code = int(escape[1][1:], 16)
    if code < 0x20 or chr(code) in '"\\[]^-/' or not code <= 0x10FFFF or 0xD800 <= code < 0xE000:
        return f"\\x{code:02x}" if code < 0x100 else escape[0]
    return chr(code)
