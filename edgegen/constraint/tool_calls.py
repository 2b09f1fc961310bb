"""ToolCallConstraint: constrains an answer to calls of the given tools, in the format of the model's family."""

import json
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Self, cast

from edgegen.chat.layout import AnswerLayout, MessageHeaders
from edgegen.chat.literals import SYNTAXES
from edgegen.chat.reply import ReplyFormat
from edgegen.chat.tool_formats import PYTHON_TAG, is_text
from edgegen.constraint.constraint import SPACE, Whitespace
from edgegen.constraint.cost import check_schema_cost
from edgegen.constraint.json_schema import JsonSchema
from edgegen.constraint.literal_rules import LiteralRules
from edgegen.errors import ConstraintError

MOST_REQUIRED_CALLS = 8
"""An answer that must be calls has at most these: a small model may go on with one call until its limit."""

_WITHIN = 2
"""A list of calls, and a call, in which arguments stand."""
_NEW_LINE = "\n"
_PLACEHOLDER = re.compile(r"(\{(?:name|n|id)\})")
_PLACEHOLDERS = {"{name}": "{name}", "{n}": "/[0-9]{1,3}/", "{id}": "/[A-Za-z0-9_-]{1,40}/"}


@dataclass(frozen=True)
class ToolCallConstraint:
    """Calls that must be made, or that may be made anywhere in free text, after thoughts if the model thinks aloud.

    After an opening marker, only calls of the tools go on, with arguments that follow the schemas. Where a call must be
    made, the model may end after the first one, or go on with others, up to ``MOST_REQUIRED_CALLS``.

    Attributes:
        grammar: the Lark grammar.
    """

    name = "the grammar of the tool calls"

    grammar: str

    @classmethod
    def of(cls, form: ReplyFormat, special: Mapping[str, int], whitespace: Whitespace = "compact") -> Self:
        """``special``: the ids of the markers that are special tokens; ``whitespace``: of the calls' JSON.

        Raises:
            ConstraintError: the schema of a tool's arguments cannot be enforced.
        """
        return cls(_Writer(form, special, whitespace).grammar())

    def source(self) -> str:
        return json.dumps({"grammars": [{"lark_grammar": self.grammar}]})

    def explain(self, complaint: str) -> str:
        return complaint


class _Writer:
    """Writes the grammar; ``special`` has the ids of the markers that are special tokens."""

    def __init__(self, form: ReplyFormat, special: Mapping[str, int], whitespace: Whitespace) -> None:
        assert form.style is not None
        assert form.tools is not None
        self._form, self._style, self._tools, self._special = form, form.style, form.tools, special
        self._layout = form.layout or AnswerLayout(())
        self._several = form.tools.parallel and not form.style.single
        self._more = f"{{0,{MOST_REQUIRED_CALLS - 1}}}" if form.tools.required else "*"
        self._rules = list[str]()
        self._whitespace: Whitespace = whitespace
        # What a model begins by itself may have the spaces of its template, which most have as json.dumps does.
        if whitespace == "compact" and form.style.indented and not form.tools.required:
            self._whitespace = "flexible"
        is_compact = self._whitespace == "compact"
        self._spaced = is_compact and not form.tools.required
        self._space = "" if is_compact and form.tools.required else "SPACE?"

    def grammar(self) -> str:
        check_schema_cost(self._tools.parameters.values(), "the grammar of the tool calls")
        literal = self._style.body in SYNTAXES
        if self._space or literal:
            self._rules.append(f"SPACE: /{SPACE[self._whitespace] or ' '}/")
        if literal:
            self._literals = LiteralRules(self._style.body, self._rules, self._text, self._special)
        if self._layout.headers is not None:
            return "\n".join([f"start: {self._headed(self._layout.headers)}", *self._rules]) + "\n"
        bodies = [self._body(n, name, schema) for n, (name, schema) in enumerate(self._tools.parameters.items())]
        self._rules.append(f"body: {' | '.join(bodies)}")
        start = self._required() if self._tools.required else self._auto()
        return "\n".join([f"start: {start}", *self._rules]) + "\n"

    def _required(self) -> str:
        """Calls and nothing else, after thoughts if the model thinks aloud."""
        style = self._style
        opening = "" if self._form.begun else self._text(style.opening)
        if style.body in ("list", "keyed", "python") or style.several or not style.opening:
            calls = f"{opening} {self._section()}"
        else:
            separator = '"\\n"?' if style.closing else ""
            begin, end = map(self._text, style.wrappers or ("", ""))
            more = f"({separator} {self._text(style.opening)} body){self._more}" if self._several else ""
            calls = f"{begin} {opening} body {more} {end}"
        if not style.opening and PYTHON_TAG in self._special:
            calls = f"({self._text(PYTHON_TAG)})? {calls}"
        if style.turn_end:
            calls = f'({self._text(style.turn_end)} "\\n\\n")? {calls}'
        return f"{self._thoughts()} {calls}"

    def _section(self) -> str:
        """Return the expression of the text after an opening marker."""
        style = self._style
        if style.body in ("list", "keyed", "python"):
            more = f'("," {self._space} body){self._more}' if self._several else ""
            begin = "" if style.opening.endswith("[") else '"["'
            fence = f"/[ \\n]{{0,4}}/ {self._text(style.fence)} /[ \\n]{{0,4}}/" if style.fence else self._space
            return f'{fence} {begin} {self._space} body {more} {self._space} "]" {self._text(style.closing)}'
        if style.several:
            more = f"({_quoted(_NEW_LINE)} body){self._more}" if self._several else ""
            return f"{_quoted(_NEW_LINE)} body {more} {_quoted(_NEW_LINE)} {self._text(style.closing)}"
        return "body" if style.opening else f"body {self._more_bare}"

    @property
    def _more_bare(self) -> str:
        return f'("; " body){self._more}' if self._several else ""

    def _thoughts(self) -> str:
        """Return the expression of the thoughts that may come before the calls of a model that reasons; they must where
        the prompt has begun them."""
        markers = self._form.reasoning
        if markers is None:
            return ""
        between = self._text(self._layout.between)
        if markers.closing in self._special:
            self._rules.append(f"thoughts: /(?s:.*)/ {self._text(markers.closing)} /\\n*/ {between}")
        else:
            self._rules.append(f"thought[suffix={_quoted(markers.closing)}]: /(?s:.*)/")
            self._rules.append(f"thoughts: thought /\\n*/ {between}")
        return "thoughts" if self._form.in_reasoning else f"({self._text(markers.opening)} thoughts)?"

    def _headed(self, headers: MessageHeaders) -> str:
        """Messages with headers: thoughts, content, and at the end a call."""
        channel, message, begin = map(self._text, (headers.channel, headers.message, headers.begin))
        kind = f'({self._text(headers.kind)} | {self._text(headers.kind.lstrip())} | " json")?'
        calls = list[str]()
        for name, schema in self._tools.parameters.items():
            called = f"{headers.recipient}{headers.namespace}{name}"
            header = (
                f"{channel} {_quoted(headers.calls + called)} | {_quoted(called)} {channel} {_quoted(headers.calls)}"
            )
            arguments = f"%json {self._rule({'type': 'object', **schema}, name)}"
            calls.append(f"({header}) {kind} {message} {arguments}")
        self._rules += ["TEXT: /(?s:.*)/", f"call: {' | '.join(calls)}"]
        self._until("message_end", headers.ends[0], "TEXT")
        self._rules.append(f"thought: {channel} {_quoted(headers.thoughts)} {message} message_end {begin}")
        said = " | ".join(map(_quoted, headers.said))
        self._rules.append(f"said: {channel} ({said}) {message} (TEXT | message_end | message_end {begin} answer)")
        self._rules.append("answer: thought answer | call" + ("" if self._tools.required else " | said"))
        return f"message_end {begin} answer" if self._form.in_reasoning else "answer"

    def _auto(self) -> str:
        """Free text in which an opening marker begins calls, after thoughts in which it does not.

        A piece of free text ends with a special token, or with a lazy terminal, which wins as soon as it matches.
        """
        markers = self._form.reasoning
        self._rules.append("TEXT: /(?s:.*)/")
        if markers is None:
            self._rules.append(f"answer: {self._answer('TEXT')}")
            return "begun" if self._form.begun else "answer"
        more = self._tokens(self._special.keys() - {markers.closing})
        self._rules.append(f"thinking: TEXT {f'| TEXT {more} thinking' if more else ''} | thought answer")
        self._until("thought", markers.closing, "TEXT")
        if self._form.in_reasoning or self._begins_with_token(markers.opening):
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
        style, markers = self._style, self._form.reasoning
        opening = style.opening
        if not opening:
            return self._bare_answer(text)
        thinks = markers.opening if markers is not None else ""
        begins = [part for marker in (opening, thinks, style.turn_end) for part in self._parts(marker)]
        more = self._tokens(self._special.keys() - {*begins, *self._layout.ends})
        trigger = f"until_{text.lower()}"
        self._until(trigger, opening, text)
        end = f"({self._text(style.wrappers[1])})?" if style.wrappers else ""
        after = f"{self._section()} {'answer' if self._several else end}"
        for said in self._layout.skipped:  # a message to the user begins as a call does
            if said.startswith(opening):
                after = f"({after} | {self._text(said.removeprefix(opening))} answer)"
        ways = [text, f"{trigger} {after}"]
        if more:
            ways.append(f"{text} {more} answer")
        if markers is not None and markers.again and self._begins_with_token(thinks):
            ways.append(f"{text} {self._text(thinks)} thinking")
        if style.turn_end in self._special:
            ways.append(f'{text} {self._text(style.turn_end)} ("\\n\\n" ({self._text(opening)} {after})?)?')
        if self._form.begun and text == "TEXT":
            self._rules.append(f"begun: {after}")
        return " | ".join(ways)

    def _bare_answer(self, text: str) -> str:
        """Calls without an opening marker: the name of a tool at the beginning of an answer is one."""
        style, tools = self._style, self._tools
        tag = f"({self._text(PYTHON_TAG)})?" if PYTHON_TAG in self._special else ""
        names = " | ".join(_quoted(_quoted(name)) for name in tools.parameters)
        name_key, arguments_key = _quoted(_quoted(style.name_key)), _quoted(_quoted(style.arguments_key))
        begin = f"/\\s*/ ({_quoted(PYTHON_TAG)} /\\s*/)?"
        if style.separator:
            heads = [f"{begin} {_quoted(name + style.separator)}" for name in tools.parameters]
            names = " | ".join(_quoted(name + style.separator) for name in tools.parameters)
        else:
            begin = f'{begin} "{{" /\\s*/ {name_key} /\\s*:\\s*/'
            heads = [f"{begin} {_quoted(_quoted(name))}" for name in tools.parameters]
        calls = list[str]()
        for n, (name, schema) in enumerate(tools.parameters.items()):
            self._rules.append(f"begin_{n}[lazy]: {heads[n]}")
            arguments = f"%json {self._rule({'type': 'object', **schema}, name)}"
            space = self._space
            rest = f'{space} "," {space} {arguments_key} ":" {space} {arguments} {space} "}}"'
            calls.append(f"begin_{n} {arguments if style.separator else rest}")
        self._rules.append(f"NO_CALL: {text} & ~({begin} ({names}) TEXT)")
        return f"{tag} NO_CALL | {tag} ({' | '.join(calls)}) {self._more_bare}"

    def _until(self, rule: str, marker: str, text: str) -> None:
        """A rule for ``text`` up to a marker, which is spelled, or has special tokens."""
        self._rules.append(f"{rule}_spelled[suffix={_quoted(marker)}]: {text}")
        parts, token = self._parts(marker), ""
        if parts[0] in self._special:
            token = f"| {text} {self._text(marker)}"
        elif len(parts) > 1:
            lead = f"{rule.upper()}_LEAD"
            begun = re.escape(parts[0]).replace("/", r"\/")
            self._rules.append(f"{lead}: {text} & /(?s:.*){begun}/")
            token = f"| {lead} {self._text(marker.removeprefix(parts[0]))}"
        self._rules.append(f"{rule}: {rule}_spelled {token}")

    def _begins_with_token(self, marker: str) -> bool:
        return marker != "" and self._parts(marker)[0] in self._special

    def _parts(self, marker: str) -> list[str]:
        """A marker as special tokens and the texts between them."""
        longest = sorted(map(re.escape, self._special), key=len, reverse=True)
        return [*filter(None, re.split(f"({'|'.join(longest)})", marker) if longest else [marker])]

    def _tokens(self, markers: Collection[str]) -> str:
        """One of these special tokens."""
        ids = sorted(self._special[marker] for marker in markers)
        return f"<[{','.join(map(str, ids))}]>" if ids else ""

    def _body(self, n: int, name: str, schema: Mapping[str, Any]) -> str:
        """The rule of a call of one tool, after the opening marker."""
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
                body = f"%json {self._rule(entry, name, schema)}"
                if style.body == "list" or not style.opening:
                    return self._named(n, body)
                return self._named(n, f"{self._text(style.pad)} {body} {self._text(style.pad)} {closing}")
            case "keyed":
                entry = {
                    "type": "object",
                    "properties": {name: schema},
                    "required": [name],
                    "additionalProperties": False,
                }
                return self._named(n, f"%json {self._rule(entry, name, schema)}")
            case "python":
                return self._named(
                    n, f'{_quoted(f"{name}(")} {self._literals.arguments(f"args_{n}", name, schema)} ")"'
                )
            case "braces":
                arguments = self._literals.arguments(f"args_{n}", name, schema)
                return self._named(n, f'{_quoted(f"call:{name}{{")} {arguments} "}}" {closing}')
            case "named":
                parts = [_PLACEHOLDERS.get(part) or self._text(part) for part in _PLACEHOLDER.split(style.name_text)]
                head = " ".join(_quoted(name) if part == "{name}" else part for part in parts)
                arguments = f"%json {self._rule(schema, name)} {self._text(style.pad)}"
                return self._named(n, f"{head} {self._text(style.separator)} {arguments} {closing}")
            case "functions":
                tags = style.tags
                before = f"{tags.parameter}{{}}{tags.typed.replace('{}', '{{}}') or tags.named}{tags.pad}"
                pairs = self._pairs(n, name, schema, before, tags.pad, tags.parameter_end)
                head = f"{tags.function}{name}{tags.named}{_NEW_LINE}"
                if style.several:
                    return self._named(n, f"{self._text(head)} {pairs} {self._text(tags.function_end)}")
                last = f"{tags.function_end}{_NEW_LINE}"
                return self._named(n, f"{self._text(_NEW_LINE + head)} {pairs} {self._text(last)} {closing}")
            case "pairs":
                between = "<arg_key>{}</arg_key>\n<arg_value>"
                pairs = self._pairs(n, name, schema, between, "", "</arg_value>")
                return self._named(n, f"{self._lines(name + _NEW_LINE)} {pairs} {closing}")

    def _rule(self, schema: Mapping[str, Any], name: str, inner: Mapping[str, Any] | None = None) -> str:
        """``schema`` for ``%json``; definitions of ``inner``, a part of it, move to the top, where references look."""
        shared = {key: inner[key] for key in ("$defs", "definitions") if key in inner} if inner else {}
        try:
            return json.dumps(JsonSchema.of({**shared, **schema}, self._whitespace).rule(_WITHIN, spaced=self._spaced))
        except ConstraintError as error:
            raise ConstraintError(f"the arguments of the tool {name!r} cannot be enforced: {error}") from None

    def _named(self, n: int, body: str) -> str:
        self._rules.append(f"body_{n}: {body}")
        return f"body_{n}"

    def _pairs(self, n: int, name: str, schema: Mapping[str, Any], before: str, space: str, tag: str) -> str:
        """The arguments in the schema's order, those that are not required as options; strings stand as they are.

        ``space`` is after a value, and then its closing ``tag``; the first one ends a string.
        """
        properties: Mapping[str, Any] = schema.get("properties") or {}
        shared = {key: schema[key] for key in ("$defs", "definitions") if key in schema}
        required = schema.get("required") or ()
        parts = list[str]()
        for m, (key, entry) in enumerate(properties.items()):
            rule, is_string = f"value_{n}_{m}", entry.get("type") == "string"
            if is_text(schema, key) and not entry.keys() & {"enum", "const", "pattern", "maxLength", "format"}:
                self._until(rule, tag, "/(?s:.*)/")
            elif is_string:
                self._rules.append(f"{rule}: ({self._choices(entry, name, key)}) {self._text(space + tag)}")
            else:
                self._rules.append(f"{rule}: %json {self._rule({**shared, **entry}, name)} {self._text(space + tag)}")
            typed = before.format(key).replace("{}", "true" if is_string else "false")
            part = f"{self._lines(typed)} {rule} {self._lines(_NEW_LINE)}"
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
        """A marker in the grammar: special tokens by their ids, and text; nothing where the token ends the answer."""
        parts = (part for part in self._parts(marker) if part not in self._layout.ends or part not in self._special)
        return " ".join(f"<[{self._special[part]}]>" if part in self._special else _quoted(part) for part in parts)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
