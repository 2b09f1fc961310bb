"""ToolCallConstraint: constrains an answer to calls of the given tools, in the format of the model's family."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, cast

from edgegen.chat.reply import ReplyFormat
from edgegen.chat.tool_formats import is_text
from edgegen.constraint.json_schema import JsonSchema
from edgegen.errors import ConstraintError


@dataclass(frozen=True)
class ToolCallConstraint:
    """One call or several, after thoughts if the model thinks aloud.

    Attributes:
        grammar: the Lark grammar.
    """

    grammar: str

    @classmethod
    def of(cls, form: ReplyFormat, special: Mapping[str, int]) -> Self:
        """``special``: the ids of the markers that are special tokens.

        Raises:
            ConstraintError: the schema of a tool's arguments cannot be enforced.
        """
        return cls(_Writer(form, special).grammar())

    @property
    def name(self) -> str:
        return "the grammar of the tool calls"

    def source(self) -> str:
        return json.dumps({"grammars": [{"lark_grammar": self.grammar}]})

    def explain(self, complaint: str) -> str:
        return complaint


class _Writer:
    def __init__(self, form: ReplyFormat, special: Mapping[str, int]) -> None:
        assert form.style is not None
        assert form.tools is not None
        self._form, self._style, self._tools, self._special = form, form.style, form.tools, special
        self._rules = list[str]()

    def grammar(self) -> str:
        style = self._style
        calls = [self._call(n, name, schema) for n, (name, schema) in enumerate(self._tools.parameters.items())]
        self._rules.append(f"call: {' | '.join(calls)}")
        several = not self._tools.single
        if style.body == "list":
            entries = 'call (", " call)*' if several else "call"
            start = f'{self._text(style.opening)} "[" {entries} "]" {self._text(style.closing)}'
        elif not style.opening:
            start = 'call ("; " call)*' if several else "call"
        elif style.wrappers:
            begin, end = map(self._text, style.wrappers)
            start = f"{begin} {'call+' if several else 'call'} {end}"
        else:
            start = f"call ({self._separator()} call)*" if several else "call"
        return "\n".join([f"start: {self._thoughts()} {start}", *self._rules]) + "\n"

    def _separator(self) -> str:
        return '"\\n"' if self._style.closing else ""

    def _thoughts(self) -> str:
        """What may come before the calls of a model that thinks aloud, or must where the prompt has begun it."""
        markers = self._form.reasoning
        if markers is None:
            return ""
        if markers.closing in self._special:
            self._rules.append(f"thoughts: /(?s:.*)/ {self._text(markers.closing)} /\\n*/")
        else:
            self._rules.append(f"thought[suffix={json.dumps(markers.closing)}]: /(?s:.*)/")
            self._rules.append("thoughts: thought /\\n*/")
        return "thoughts" if self._form.in_reasoning else f"({self._text(markers.opening)} thoughts)?"

    def _call(self, n: int, name: str, schema: Mapping[str, Any]) -> str:
        style = self._style
        opening, closing = self._text(style.opening), self._text(style.closing)
        schema = {"type": "object", **schema}
        match style.body:
            case "object" | "list":
                entry = {
                    "type": "object",
                    "properties": {style.name_key: {"const": name}, style.arguments_key: schema},
                    "required": [style.name_key, style.arguments_key],
                    "additionalProperties": False,
                }
                body = f"%json {_rule(entry, name, schema)}"
                if style.body == "list" or not opening:
                    return self._named(n, body)
                return self._named(n, f'{opening} "\\n" {body} "\\n" {closing}')
            case "named":
                head = f"functions.{name}:0" if style.name == "kimi" else name
                arguments = f"%json {_rule(schema, name)}"
                return self._named(n, f"{opening} {_quoted(head)} {self._text(style.separator)} {arguments} {closing}")
            case "functions":
                pairs = self._pairs(n, name, schema, "<parameter={}>\n", "\n", "</parameter>")
                head = _quoted(f"\n<function={name}>\n")
                return self._named(n, f'{opening} {head} {pairs} "</function>\\n" {closing}')
            case "pairs":
                between = "<arg_key>{}</arg_key>\n<arg_value>"
                pairs = self._pairs(n, name, schema, between, "", "</arg_value>")
                return self._named(n, f'{opening} {_quoted(name)} "\\n" {pairs} {closing}')

    def _named(self, n: int, body: str) -> str:
        self._rules.append(f"call_{n}: {body}")
        return f"call_{n}"

    def _pairs(self, n: int, name: str, schema: Mapping[str, Any], before: str, space: str, tag: str) -> str:
        """The arguments in the schema's order, those that are not required as options; strings stand as they are.

        ``space`` is behind a value, and then its closing ``tag``; the first one ends a string.
        """
        properties: Mapping[str, Any] = schema.get("properties") or {}
        shared = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
        required = schema.get("required") or ()
        parts = list[str]()
        for m, (key, entry) in enumerate(properties.items()):
            rule = f"value_{n}_{m}"
            if is_text(schema, key) and not entry.keys() & {"enum", "const", "pattern", "maxLength", "format"}:
                self._rules.append(f"{rule}[suffix={json.dumps(tag)}]: /(?s:.*)/")
            elif entry.get("type") == "string":
                self._rules.append(f"{rule}: ({self._choices(entry, name, key)}) {_quoted(space + tag)}")
            else:
                self._rules.append(f"{rule}: %json {_rule({**shared, **entry}, name)} {_quoted(space + tag)}")
            part = f'{_quoted(before.format(key))} {rule} "\\n"'
            parts.append(part if key in required else f"({part})?")
        return " ".join(parts)

    def _choices(self, entry: Mapping[str, Any], name: str, key: str) -> str:
        """The texts that a string may be, which this format writes without quotes."""
        values: Any = [entry["const"]] if "const" in entry else entry.get("enum")
        if not isinstance(values, list):
            raise ConstraintError(
                f"the tool {name!r} has an argument {key!r} whose pattern, format or maxLength cannot be enforced in "
                f"this model's format: leave it out"
            )
        return " | ".join(_quoted(str(value)) for value in cast(list[Any], values))

    def _text(self, marker: str) -> str:
        """A marker in the grammar: a special token by its id, or its text."""
        if not marker:
            return ""
        return f"<[{self._special[marker]}]>" if marker in self._special else _quoted(marker)


def _rule(schema: Mapping[str, Any], name: str, inner: Mapping[str, Any] | None = None) -> str:
    """``schema`` for ``%json``; definitions of ``inner``, a part of it, move to the top, where references look."""
    shared = {key: inner[key] for key in ("$defs", "definitions") if key in inner} if inner else {}
    try:
        return json.dumps(JsonSchema.of({**shared, **schema}, "flexible").rule())
    except ConstraintError as error:
        raise ConstraintError(f"the arguments of the tool {name!r} cannot be enforced: {error}") from None


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
