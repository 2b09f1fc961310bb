"""Grammar: constrains the output to a context-free grammar, in llguidance's Lark or llama.cpp's GBNF."""

import json
import re
from dataclasses import dataclass, field
from typing import Literal

from edgegen.errors import ConstraintError, did_you_mean

GrammarSyntax = Literal["lark", "gbnf"]

_GBNF_PARTS = re.compile(r'("(?:\\.|[^"\\])*")|(\[(?:\\.|[^\]\\])*\])|#[^\n]*|([A-Za-z0-9_-]+)', re.DOTALL)
_CODE_POINT = re.compile(r"\\(\\|x[0-9A-Fa-f]{2}|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8})")


@dataclass(frozen=True)
class Grammar:
    """A grammar whose texts begin at rule ``start`` (Lark) or ``root`` (GBNF).

    Lark is llguidance's: terminals are in capitals and match as much as they can, and ``%json`` takes in a
    schema. GBNF is converted to it. A GBNF rule that calls no recursive rule becomes one terminal and is
    exact; around recursive ones each piece takes as much as it can and gives nothing back, so that
    ``expr ::= [a-z]+ "a" | "(" expr ")"`` never gets past its letters.
    """

    text: str
    syntax: GrammarSyntax | None = field(default=None)
    """None finds out: GBNF has ``::=``."""

    def __post_init__(self) -> None:
        if self.syntax not in (None, "lark", "gbnf"):
            hint = did_you_mean(str(self.syntax), ("lark", "gbnf"))
            raise ConstraintError(f"a grammar's syntax is lark or gbnf, not {self.syntax!r}{hint}")
        if not self.text.strip():
            raise ConstraintError("the grammar is empty: it needs a rule 'start' (Lark) or 'root' (GBNF)")

    @property
    def name(self) -> str:
        return "the grammar"

    def source(self) -> str:
        syntax = self.syntax or ("gbnf" if re.search(r"(?m)^\s*[\w-]+\s*::=", self.text) else "lark")
        lark = _lark_of(self.text) if syntax == "gbnf" else self.text
        return json.dumps({"grammars": [{"lark_grammar": lark}]})

    def explain(self, complaint: str) -> str:
        return complaint


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

    try:
        return gbnf_to_lark("root ::= edgegen-root\n" + _GBNF_PARTS.sub(prepare, gbnf))
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
