"""AnyJson: constrains the output to any JSON value."""

import json
from dataclasses import dataclass

from edgegen.constraint.constraint import SPACE, Whitespace, check_whitespace

_GRAMMAR = r"""
start: {outside} {root} {outside}
value: object | array | STRING | NUMBER | "true" | "false" | "null"
object: "{{" {space} (member ({space} "," {space} member)*)? {space} "}}"
member: STRING {space} ":" {space} value
array: "[" {space} (value ({space} "," {space} value)*)? {space} "]"
STRING: /"([^"\\\x00-\x1F]|\\(["\\\/bfnrt]|u([0-9a-ce-fA-CE-F][0-9a-fA-F]{{3}}|[dD][0-7][0-9a-fA-F]{{2}}|[dD][89abAB][0-9a-fA-F]{{2}}\\u[dD][c-fC-F][0-9a-fA-F]{{2}})))*"/
NUMBER: /-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?/
"""  # noqa: E501 (a terminal is one line)


@dataclass(frozen=True)
class AnyJson:
    """One JSON value (RFC 8259), by default an object, as ``{"type": "json_object"}`` asks for.

    Halves of surrogate pairs are not allowed alone: they are no text.
    """

    any_value: bool = False
    whitespace: Whitespace = "flexible"

    def __post_init__(self) -> None:
        check_whitespace(self.whitespace)

    @property
    def name(self) -> str:
        return "the JSON grammar"

    def source(self) -> str:
        grammar = _GRAMMAR.format(
            root="value" if self.any_value else "object",
            space="SPACE?" if SPACE[self.whitespace] else "",
            outside="SPACE?" if self.whitespace == "any" else "",
        )
        if SPACE[self.whitespace]:
            grammar += f"SPACE: /{SPACE[self.whitespace]}/\n"
        return json.dumps({"grammars": [{"lark_grammar": grammar}]})

    def explain(self, complaint: str) -> str:
        return complaint
