"""LiteralRules: grammar rules of arguments that a model writes as Python's literals, or as ``key:<|"|>text<|"|>``."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, cast

from edgegen.chat.literals import SYNTAXES, CallSyntax
from edgegen.chat.tool_formats import QUOTE, BodyKind
from edgegen.errors import ConstraintError

_NUMBERS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")
_SAYS_NOTHING = {
    "title",
    "description",
    "default",
    "examples",
    "deprecated",
    "$defs",
    "definitions",
    "$schema",
    "$comment",
}
_ENFORCED = {
    "string": set[str](),
    "integer": set(_NUMBERS),
    "number": set(_NUMBERS),
    "boolean": set[str](),
    "null": set[str](),
    "array": {"items", "minItems", "maxItems"},
    "object": {"properties", "required", "additionalProperties"},
}
_MOST_LEVELS, _MOST_ITEMS = 16, 1000
_PYTHON_TEXT = r"""/"([^"\\\x00-\x1f]|\\["\\'nrt])*"/ | /'([^'\\\x00-\x1f]|\\["\\'nrt])*'/"""


class LiteralRules:
    """Writes the rules of one format's arguments; keys that it cannot enforce are refused by name."""

    def __init__(
        self,
        body: BodyKind,
        rules: list[str],
        text: Callable[[str], str],
        special: Mapping[str, int],
    ) -> None:
        """
        Args:
            rules: where rules are added.
            text: a text as it stands in the grammar.
            special: the ids of the texts that are special tokens.
        """
        self._is_python = body == "python"
        self._rules, self._text = rules, text
        self._syntax: CallSyntax = SYNTAXES[body]
        self._true, self._false, self._null = (
            ("True", "False", "None") if self._is_python else ("true", "false", "null")
        )
        quote = text(QUOTE)
        if self._is_python:
            rules.append(f"string: {_PYTHON_TEXT}")
        elif QUOTE in special:
            rules.append(f"string: {quote} /(?s:.*)/ {quote}")
        else:
            rules.append(f"string_end[suffix={quote}]: /(?s:.*)/")
            rules.append(f"string: {quote} string_end")
        words = " | ".join(map(_quoted, (self._true, self._false, self._null)))
        key = "string" if self._is_python else "/[A-Za-z_][A-Za-z0-9_.-]*/"
        self._entry = f'{key} ":" SPACE? any'
        rules.append(f"any: string | {_json({'type': 'number'})} | {words} | any_list | any_object")
        rules.append('any_list: "[" (any ("," SPACE? any)*)? "]"')
        rules.append(f'any_object: "{{" ({self._entry} ("," SPACE? {self._entry})*)? "}}"')

    def arguments(self, rule: str, tool: str, schema: Mapping[str, Any]) -> str:
        """The arguments of a tool, in the schema's order; where the format sorts them, in that.

        Raises:
            ConstraintError: what the schema asks for cannot be enforced in this format.
        """
        writer = _Schema(tool, schema, schema)
        return self._members(rule, writer, self._syntax.assign, lambda key: self._text(key))

    def _members(self, rule: str, of: "_Schema", assign: str, key_text: Callable[[str], str]) -> str:
        """Entries with commas between them, of which those that are not required may be missing."""
        properties = cast(Mapping[str, Any], of.schema.get("properties") or {})
        required = cast(Sequence[str], of.schema.get("required") or ())
        names = list(properties) if self._is_python else sorted(properties, key=str.lower)
        space = "SPACE?" if self._is_python else ""
        after = f"{rule}_more_{len(names)}"
        self._rules.append(f'{after}: ""')
        begins = [""]
        for n, key in reversed(list(enumerate(names))):
            entry = f"{key_text(key)} {_quoted(assign)} {self._value(f'{rule}_{n}', of.inner(key, properties[key]))}"
            more, must = f"{rule}_more_{n}", key in required
            self._rules.append(f"{rule}_{n}: {entry}")
            self._rules.append(f'{more}: "," {space} {rule}_{n} {after} {"" if must else f"| {after}"}')
            begins = [f"{rule}_{n} {after}", *([] if must else begins)]
            after = more
        return "(" + " | ".join(begin or '""' for begin in begins) + ")"

    def _value(self, rule: str, of: "_Schema") -> str:
        schema = of.schema
        if not {*schema} - _SAYS_NOTHING:
            return "any"
        if "$ref" in schema:
            return self._value(rule, of.referred())
        if values := of.values():
            return "(" + " | ".join(text for value in values for text in self._literal(value, of)) + ")"
        if branches := of.branches():
            return "(" + " | ".join(self._value(f"{rule}_{n}", branch) for n, branch in enumerate(branches)) + ")"
        kind: Any = schema.get("type", "object" if "properties" in schema else None)
        of.refuse_all_but(_ENFORCED.get(kind, set[str]()) | {"type"})
        match kind:
            case "string":
                return "string"
            case "integer" | "number":
                return _json({key: schema[key] for key in ("type", *_NUMBERS) if key in schema})
            case "boolean":
                return f"({_quoted(self._true)} | {_quoted(self._false)})"
            case "null":
                return _quoted(self._null)
            case "array":
                return self._array(rule, of)
            case "object":
                return self._object(rule, of)
            case _:
                raise of.refusal(f"type {kind!r}")

    def _array(self, rule: str, of: "_Schema") -> str:
        least, most = of.schema.get("minItems", 0), of.schema.get("maxItems", _MOST_ITEMS)
        if not 0 <= least <= most <= _MOST_ITEMS or least % 1 or most % 1:
            raise of.refusal("minItems or maxItems")
        least, most = int(least), int(most)  # JSON Schema's 2.0 is a whole number
        self._rules.append(
            f"{rule}_item: {self._value(f'{rule}_items', of.inner('items', of.schema.get('items', {})))}"
        )
        more = f"{{{max(0, least - 1)},{most - 1}}}" if "maxItems" in of.schema else f"{{{max(0, least - 1)},}}"
        written = f'{rule}_item ("," SPACE? {rule}_item){more}' if most else '""'
        return f'"[" ({written}){"" if least else "?"} "]"'

    def _object(self, rule: str, of: "_Schema") -> str:
        if not of.schema.get("properties"):
            if isinstance(of.schema.get("additionalProperties"), dict) or of.schema.get("required"):
                raise of.refusal("additionalProperties or required")
            return '"{" "}"' if of.schema.get("additionalProperties") is False else "any_object"
        assign = ": " if self._is_python else ":"
        key_text: Callable[[str], str] = (lambda key: _quoted(json.dumps(key))) if self._is_python else self._text
        return f'"{{" {self._members(rule, of, assign, key_text)} "}}"'

    def _literal(self, value: Any, of: "_Schema") -> list[str]:
        """The texts of one value."""
        if isinstance(value, str):
            if not self._is_python:
                return [f"{self._text(QUOTE)} {self._text(value)} {self._text(QUOTE)}"]
            return list(dict.fromkeys((_quoted(json.dumps(value, ensure_ascii=False)), _quoted(repr(value)))))
        words = {True: self._true, False: self._false, None: self._null}
        if value is None or isinstance(value, bool):
            return [_quoted(words[value])]
        if isinstance(value, int | float):
            return [_quoted(json.dumps(value))]
        raise of.refusal("enum of lists or objects")


class _Schema:
    """A schema within a tool's arguments, and where it stands."""

    def __init__(self, tool: str, schema: Any, root: Mapping[str, Any], where: str = "", level: int = 0) -> None:
        self.schema = cast(Mapping[str, Any], schema if isinstance(schema, Mapping) else {})
        self._tool, self._root, self._where, self._level = tool, root, where, level
        if level > _MOST_LEVELS:
            raise self.refusal("nesting, or a schema that refers to itself,")
        if schema is False:
            raise self.refusal("schema false")

    def inner(self, key: str, schema: Any) -> "_Schema":
        return _Schema(self._tool, schema, self._root, f"{self._where}.{key}".lstrip("."), self._level + 1)

    def referred(self) -> "_Schema":
        """Return the schema that ``$ref`` refers to."""
        reference, target = str(self.schema["$ref"]), cast(Any, self._root)
        for part in reference.removeprefix("#/").split("/"):
            target = cast(Any, target).get(part) if isinstance(target, Mapping) else None
        if target is None or not reference.startswith("#/"):
            raise self.refusal(f"$ref {reference!r}")
        self.refuse_all_but({"$ref"})
        return self._at_this_place(target)

    def values(self) -> list[Any]:
        """Return the values that the schema names."""
        if "const" in self.schema:
            self.refuse_all_but({"const", "type"})
            return [self.schema["const"]]
        values: Any = self.schema.get("enum")
        if isinstance(values, list):
            self.refuse_all_but({"enum", "type"})
            return cast(list[Any], values)
        return []

    def branches(self) -> "list[_Schema]":
        """Schemas of which one must fit."""
        for key in ("anyOf", "oneOf"):
            if isinstance(branches := self.schema.get(key), list):
                self.refuse_all_but({key, "type"})
                return [
                    _Schema(self._tool, b, self._root, self._where, self._level + 1) for b in cast(list[Any], branches)
                ]
        kinds: Any = self.schema.get("type")
        if not isinstance(kinds, list):
            return []
        of_kinds = [
            {"type": kind, **{key: self.schema[key] for key in self.schema if key in _ENFORCED.get(kind, ())}}
            for kind in cast(list[Any], kinds)
        ]
        self.refuse_all_but({"type", *(key for kind in of_kinds for key in kind)})
        return [self._at_this_place(kind) for kind in of_kinds]

    def _at_this_place(self, schema: Any) -> "_Schema":
        return _Schema(self._tool, schema, self._root, self._where, self._level + 1)

    def refuse_all_but(self, keys: set[str]) -> None:
        """Refuse every key of the schema that is not among ``keys``.

        Raises:
            ConstraintError: the schema asks for more than ``keys``.
        """
        if more := sorted({*self.schema} - keys - _SAYS_NOTHING):
            raise self.refusal(", ".join(more))

    def refusal(self, what: str) -> ConstraintError:
        return ConstraintError(
            f"the tool {self._tool!r} has an argument {self._where!r} whose {what} cannot be enforced in this model's "
            "format: leave it out"
        )


def _json(schema: Mapping[str, Any]) -> str:
    return f"%json {json.dumps(schema)}"


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
