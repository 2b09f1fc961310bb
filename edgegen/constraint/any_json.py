"""AnyJson: constrains the output to any JSON value."""

import json
from dataclasses import dataclass

from edgegen.constraint.constraint import (
    COLON,
    COMMA,
    FREE_LEVELS,
    SPACE,
    Whitespace,
    check_whitespace,
    line_break,
    read_whitespace_pattern,
)

_GRAMMAR = r"""
start: {outside} {root} {outside}
value: object | array | STRING | NUMBER | "true" | "false" | "null"
object: "{{" ({inside} member ({comma} member)* {inside} {blank})? "}}"
member: STRING {colon} value
array: "[" ({inside} value ({comma} value)* {inside} {blank})? "]"
STRING: /"([^"\\\x00-\x1F]|\\(["\\\/bfnrt]|u([0-9a-ce-fA-CE-F][0-9a-fA-F]{{3}}|[dD][0-7][0-9a-fA-F]{{2}}|[dD][89abAB][0-9a-fA-F]{{2}}\\u[dD][c-fC-F][0-9a-fA-F]{{2}})))*"/
NUMBER: /-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/
"""  # noqa: E501 (a terminal is one line)


@dataclass(frozen=True)
class AnyJson:
    """One JSON value (RFC 8259), by default an object, as ``{"type": "json_object"}`` asks for.

    Halves of surrogate pairs are not allowed alone: they are no text.
    """

    name = "the JSON grammar"

    any_value: bool = False
    whitespace: Whitespace = "compact"
    whitespace_pattern: str | None = None

    def __post_init__(self) -> None:
        check_whitespace(self.whitespace, self.whitespace_pattern)

    def source(self) -> str:
        pattern = self.whitespace_pattern
        match self.whitespace if pattern is None else "pattern" if pattern else "compact":
            case "compact":
                inside, comma, colon, rules = "", '","', '":"', ""
            case "flexible":
                inside, comma, colon = "BREAK?", "COMMA BREAK?", "COLON"
                rules = f"BREAK: /{line_break(FREE_LEVELS)}/\nCOMMA: /{COMMA}/\nCOLON: /{COLON}/\n"
            case "any":
                inside, comma, colon = "SPACE?", 'SPACE? "," SPACE?', 'SPACE? ":" SPACE?'
                rules = f"SPACE: /{SPACE['any']}/\n"
            case _:
                inside, comma, colon = "SPACE?", 'SPACE? "," SPACE?', 'SPACE? ":" SPACE?'
                rules = f"SPACE: /{read_whitespace_pattern(pattern or '')}/ & /(?s:.+)/\n"
        grammar = rules + _GRAMMAR.format(
            root="value" if self.any_value else "object",
            outside="SPACE?" if self.whitespace == "any" and pattern is None else "",
            inside=inside,
            comma=comma,
            colon=colon,
            blank="| SPACE" if self.whitespace == "any" and pattern is None else "",
        )
        return json.dumps({"grammars": [{"lark_grammar": grammar}]})

    def explain(self, complaint: str) -> str:
        return complaint
