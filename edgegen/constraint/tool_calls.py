"""ToolCallConstraint: constrains an answer to calls of the given tools, in the format of the model's family."""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Self, cast

from edgegen.chat.reply import ReplyFormat
from edgegen.chat.tool_formats import PYTHON_TAG, is_text
from edgegen.constraint.constraint import SPACE
from edgegen.constraint.json_schema import JsonSchema
from edgegen.errors import ConstraintError

_NEW_LINE = "\n"
_PLACEHOLDER = re.compile(r"(\{(?:name|n|id)\})")
_PLACEHOLDERS = {"{name}": "{name}", "{n}": "/[0-9]{1,3}/", "{id}": "/[A-Za-z0-9_-]{1,40}/"}


@dataclass(frozen=True)
class ToolCallConstraint:
    """Calls that must be made, or that may be made anywhere in free text, after thoughts if the model thinks aloud.

    Behind an opening marker, only calls of the tools go on, with arguments that follow the schemas.

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
    """Writes the grammar; ``special`` has the ids of the markers that are special tokens."""

    def __init__(self, form: ReplyFormat, special: Mapping[str, int]) -> None:
        assert form.style is not None
        assert form.tools is not None
        self._form, self._style, self._tools, self._special = form, form.style, form.tools, special
        self._several = form.tools.parallel
        self._rules = list[str]()

    def grammar(self) -> str:
        self._rules.append(f"SPACE: /{SPACE['flexible']}/")
        bodies = [self._body(n, name, schema) for n, (name, schema) in enumerate(self._tools.parameters.items())]
        self._rules.append(f"body: {' | '.join(bodies)}")
        start = self._required() if self._tools.required else self._auto()
        return "\n".join([f"start: {start}", *self._rules]) + "\n"

    def _required(self) -> str:
        """Calls and nothing else, after thoughts if the model thinks aloud."""
        style = self._style
        opening = self._text(style.opening)
        if style.body == "list" or style.several or not style.opening:
            calls = f"{opening} {self._section()}"
        else:
            separator = '"\\n"?' if style.closing else ""
            begin, end = map(self._text, style.wrappers or ("", ""))
            more = f"({separator} {opening} body)*" if self._several else ""
            calls = f"{begin} {opening} body {more} {end}"
        return f"{self._thoughts()} {calls}"

    def _section(self) -> str:
        """What stands behind an opening marker."""
        style = self._style
        if style.body == "list":
            more = '("," SPACE? body)*' if self._several else ""
            return f'SPACE? "[" SPACE? body {more} SPACE? "]" {self._text(style.closing)}'
        if style.several:
            more = f"({_quoted(_NEW_LINE)} body)*" if self._several else ""
            return f"{_quoted(_NEW_LINE)} body {more} {_quoted(_NEW_LINE)} {self._text(style.closing)}"
        return "body" if style.opening else f"body {self._more_bare}"

    @property
    def _more_bare(self) -> str:
        return '("; " body)*' if self._several else ""

    def _thoughts(self) -> str:
        """What may come before the calls of a model that thinks aloud, or must where the prompt has begun it."""
        markers = self._form.reasoning
        if markers is None:
            return ""
        if markers.closing in self._special:
            self._rules.append(f"thoughts: /(?s:.*)/ {self._text(markers.closing)} /\\n*/")
        else:
            self._rules.append(f"thought[suffix={_quoted(markers.closing)}]: /(?s:.*)/")
            self._rules.append("thoughts: thought /\\n*/")
        return "thoughts" if self._form.in_reasoning else f"({self._text(markers.opening)} thoughts)?"

    def _auto(self) -> str:
        """Free text in which an opening marker begins calls, after thoughts in which it does not.

        A piece of free text ends with a special token, or with a lazy terminal, which wins as soon as it matches.
        """
        markers = self._form.reasoning
        self._rules.append("TEXT: /(?s:.*)/")
        if markers is None:
            self._rules.append(f"answer: {self._answer('TEXT')}")
            return "answer"
        more = self._tokens(self._special.keys() - {markers.closing})
        self._rules.append(f"thinking: TEXT {f'| TEXT {more} thinking' if more else ''} | thought answer")
        self._until("thought", markers.closing, "TEXT")
        if self._form.in_reasoning or markers.opening in self._special:
            self._rules.append(f"answer: {self._answer('TEXT')}")
            begun = f"/\\s*/ {self._text(markers.opening)} thinking | answer"
            return "thinking" if self._form.in_reasoning else begun
        think = f"/\\s*/ {_quoted(markers.opening)}"
        self._rules += [f"think[lazy]: {think}", f"UNTHINKING: TEXT & ~({think} TEXT)"]
        self._rules.append(f"first: {self._answer('UNTHINKING')}")
        if self._style.opening:
            self._rules.append(f"answer: {self._answer('TEXT')}")
        else:
            self._rules.append("answer: first")
        return "think thinking | first"

    def _answer(self, text: str) -> str:
        """Free text with calls, which begins with the terminal ``text``."""
        opening, markers = self._style.opening, self._form.reasoning
        if not opening:
            return self._bare_answer(text)
        more = self._tokens(self._special.keys() - {opening, markers.opening if markers else opening})
        trigger = f"until_{text.lower()}"
        self._until(trigger, opening, text)
        end = f"({self._text(self._style.wrappers[1])})?" if self._style.wrappers else ""
        then = "answer" if self._several else end
        return f"{text} {f'| {text} {more} answer' if more else ''} | {trigger} {self._section()} {then}"

    def _bare_answer(self, text: str) -> str:
        """Calls without an opening marker: the name of a tool at the beginning of an answer is one."""
        style, tools = self._style, self._tools
        tag = f"({self._text(PYTHON_TAG)})?" if PYTHON_TAG in self._special else ""
        names = " | ".join(_quoted(_quoted(name)) for name in tools.parameters)
        name_key, arguments_key = _quoted(_quoted(style.name_key)), _quoted(_quoted(style.arguments_key))
        begin = f'/\\s*/ ({_quoted(PYTHON_TAG)} /\\s*/)? "{{" /\\s*/ {name_key} /\\s*:\\s*/'
        calls = list[str]()
        for n, (name, schema) in enumerate(tools.parameters.items()):
            self._rules.append(f"begin_{n}[lazy]: {begin} {_quoted(_quoted(name))}")
            arguments = f"%json {_rule({'type': 'object', **schema}, name)}"
            calls.append(f'begin_{n} SPACE? "," SPACE? {arguments_key} ":" SPACE? {arguments} SPACE? "}}"')
        self._rules.append(f"NO_CALL: {text} & ~({begin} ({names}) TEXT)")
        return f"{tag} NO_CALL | {tag} ({' | '.join(calls)}) {self._more_bare}"

    def _until(self, rule: str, marker: str, text: str) -> None:
        """A rule for ``text`` up to a marker, which is a special token or spelled."""
        self._rules.append(f"{rule}_spelled[suffix={_quoted(marker)}]: {text}")
        token = f"| {text} {self._text(marker)}" if marker in self._special else ""
        self._rules.append(f"{rule}: {rule}_spelled {token}")

    def _tokens(self, markers: Collection[str]) -> str:
        """One of these special tokens."""
        ids = sorted(self._special[marker] for marker in markers)
        return f"<[{','.join(map(str, ids))}]>" if ids else ""

    def _body(self, n: int, name: str, schema: Mapping[str, Any]) -> str:
        """The rule of a call of one tool, behind the opening marker."""
        style = self._style
        closing = self._text(style.closing)
        schema = {"type": "object", **schema}
        match style.body:
            case "object" | "list":
                call_id = {style.id_key: {"type": "string", "pattern": "^[A-Za-z0-9_-]{1,40}$"}} if style.id_key else {}
                function = {style.name_key: {"const": name}, style.arguments_key: schema}
                properties = {**function, **call_id} if style.id_last else {**call_id, **function}
                entry = {
                    "type": "object",
                    "properties": properties,
                    "required": [*(function if style.id_last else properties)],
                    "additionalProperties": False,
                }
                body = f"%json {_rule(entry, name, schema)}"
                if style.body == "list" or not style.opening:
                    return self._named(n, body)
                return self._named(n, f"{self._text(style.pad)} {body} {self._text(style.pad)} {closing}")
            case "named":
                parts = [_PLACEHOLDERS.get(part) or self._text(part) for part in _PLACEHOLDER.split(style.name_text)]
                head = " ".join(_quoted(name) if part == "{name}" else part for part in parts)
                arguments = f"%json {_rule(schema, name)} {self._text(style.pad)}"
                return self._named(n, f"{head} {self._text(style.separator)} {arguments} {closing}")
            case "functions":
                tags = style.tags
                before = f"{tags.parameter}{{}}{tags.named}{tags.pad}"
                pairs = self._pairs(n, name, schema, before, tags.pad, tags.parameter_end)
                head = f"{tags.function}{name}{tags.named}{_NEW_LINE}"
                if style.several:
                    return self._named(n, f"{_quoted(head)} {pairs} {_quoted(tags.function_end)}")
                last = f"{tags.function_end}{_NEW_LINE}"
                return self._named(n, f"{_quoted(_NEW_LINE + head)} {pairs} {_quoted(last)} {closing}")
            case "pairs":
                between = "<arg_key>{}</arg_key>\n<arg_value>"
                pairs = self._pairs(n, name, schema, between, "", "</arg_value>")
                return self._named(n, f"{self._lines(name + _NEW_LINE)} {pairs} {closing}")

    def _named(self, n: int, body: str) -> str:
        self._rules.append(f"body_{n}: {body}")
        return f"body_{n}"

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
                end = (
                    f": /(?s:.*)/ {self._text(tag)}" if tag in self._special else f"[suffix={_quoted(tag)}]: /(?s:.*)/"
                )
                self._rules.append(f"{rule}{end}")
            elif entry.get("type") == "string":
                self._rules.append(f"{rule}: ({self._choices(entry, name, key)}) {self._text(space + tag)}")
            else:
                self._rules.append(f"{rule}: %json {_rule({**shared, **entry}, name)} {self._text(space + tag)}")
            part = f"{self._lines(before.format(key))} {rule} {self._lines(_NEW_LINE)}"
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

    def _lines(self, text: str) -> str:
        """A text whose line breaks may be missing between ``pairs``, as in GLM 4.7."""
        between = ' "\\n"? ' if self._style.body == "pairs" else ' "\\n" '
        return between.join(map(self._text, text.split(_NEW_LINE)))

    def _text(self, marker: str) -> str:
        """A marker in the grammar: special tokens by their ids, and text."""
        if not marker:
            return ""
        if not self._special:
            return _quoted(marker)
        longest = sorted(map(re.escape, self._special), key=len, reverse=True)
        parts = filter(None, re.split(f"({'|'.join(longest)})", marker))
        return " ".join(f"<[{self._special[part]}]>" if part in self._special else _quoted(part) for part in parts)


def _rule(schema: Mapping[str, Any], name: str, inner: Mapping[str, Any] | None = None) -> str:
    """``schema`` for ``%json``; definitions of ``inner``, a part of it, move to the top, where references look."""
    shared = {key: inner[key] for key in ("$defs", "definitions") if key in inner} if inner else {}
    try:
        return json.dumps(JsonSchema.of({**shared, **schema}, "flexible").rule())
    except ConstraintError as error:
        raise ConstraintError(f"the arguments of the tool {name!r} cannot be enforced: {error}") from None


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
