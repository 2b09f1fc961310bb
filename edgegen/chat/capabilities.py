"""TemplateCapabilities: what a chat template can read, found out by rendering short conversations with it.

Templates differ in the roles they know, in how they want tool calls and in what they silently leave out. Nothing in a
template says so; what a probe conversation becomes does. llama.cpp finds its ``chat_template_caps`` in the same way.
"""

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from edgegen.chat.conversation import Conversation, Message
from edgegen.errors import ChatTemplateError, ConversationError

Render = Callable[[Conversation], str]
"""Renders a conversation as it is, without any normalization."""

ArgumentsForm = Literal["text", "mapping"]
CallIds = Literal["any", "short", "named"]
"""``short``: nine letters and digits (Mistral). ``named``: ``functions.NAME:N``, which tells the name (Kimi)."""

REASONING_KEYS = ("reasoning_content", "thinking", "reasoning")
"""Fields of an assistant's message that hold what it thought, by what clients and templates call them."""

SHORT_ID = re.compile(r"[A-Za-z0-9]{9}")


@dataclass(frozen=True, slots=True)
class TemplateCapabilities:
    """Parts of a conversation that one chat template reads; with tools and without them they may differ.

    Attributes:
        user: it shows a user's message; where it does not, it needs more than messages, and is taken to read all.
        system: it shows a system message that comes first.
        several_systems: it shows each of several system messages at the front.
        late_systems: it shows a system message after other messages, at the end and amid them, beside a first one.
        system_alone: it accepts a conversation that is nothing but a system message.
        system_before_results: it shows the first system message where a tool's message comes last.
        developer: it knows the role ``developer``.
        consecutive: it shows each of several messages of one role in a row; otherwise roles must alternate.
        text_content: it reads content that is a text.
        content_parts: the roles whose content it reads as a list of parts.
        tools: it shows the definitions of tools.
        bare_tools: it shows a tool that has no description and no parameters.
        calls: it shows the calls of an assistant's message.
        results: it shows messages of the role ``tool``, which it knows.
        null_content: it accepts the content null beside calls, and does not write it.
        empty_content: the content of a message that has only calls: an empty text, or null where that hides the calls.
        text_beside_calls: it shows an assistant's text beside its calls, also when the conversation has gone on.
        parallel_calls: it shows several calls of one assistant's message, where it shows calls.
        arguments: the forms of a call's arguments that it writes as they are.
        call_ids: the call ids that it accepts.
        result_names: it shows the ``name`` of a tool's message.
        reasoning_key: the field in which it reads what an assistant thought; None where it reads none.
    """

    user: bool
    system: bool
    several_systems: bool
    late_systems: bool
    system_alone: bool
    system_before_results: bool
    developer: bool
    consecutive: bool
    text_content: bool
    content_parts: tuple[str, ...]
    tools: bool
    bare_tools: bool
    calls: bool
    results: bool
    null_content: bool
    empty_content: str | None
    text_beside_calls: bool
    parallel_calls: bool
    arguments: tuple[ArgumentsForm, ...]
    call_ids: CallIds
    result_names: bool
    reasoning_key: str | None

    def to_json(self) -> dict[str, Any]:
        """As ``edgegen info --json`` and ``/props`` show it."""
        return asdict(self)


_HELLO: Message = {"role": "user", "content": "Hello"}
_HI: Message = {"role": "assistant", "content": "Hi there"}
_FIRST, _SECOND, _THIRD, _FOURTH = "Xyzzy plugh", "Frotz gnusto", "Blorb quendor", "Yomin krill"
"""Texts that no template has, to see whether a template shows them."""
_NAME, _OTHER = "xyzzy_plugh", "frotz_gnusto"
_SHORT, _OTHER_SHORT, _LONG = "abcdefghi", "jklmnopqr", "call_abcdefghijklmnop"
_PARAMETERS: Mapping[str, Any] = {
    "type": "object",
    "properties": {"blorb": {"type": "string", "description": _THIRD}},
    "required": ["blorb"],
}


def probe(render: Render, constants: Collection[str], *, with_tools: bool) -> TemplateCapabilities:
    """Find out what a template can read.

    ``with_tools``: in conversations that have tools. ``constants``: the strings of its source, such as roles.
    """
    return _Prober(render, with_tools).capabilities(constants)


class _Prober:
    def __init__(self, render: Render, with_tools: bool) -> None:
        self._render = render
        self._tools = [_tool(_NAME), _tool(_OTHER)] if with_tools else None
        self._content: Callable[[str], Any] = lambda text: text
        self._ids: Callable[[str, str, int], str] = _short_ids
        self._arguments: ArgumentsForm = "mapping"
        self._empty: str | None = ""

    def capabilities(self, constants: Collection[str]) -> TemplateCapabilities:
        text_content = self._shows([{"role": "user", "content": _FIRST}], _FIRST)
        user_parts = self._shows([_in_parts("user")], _FIRST, _FOURTH)
        if user_parts and not text_content:
            self._content = lambda text: [{"type": "text", "text": text}]
        works = self._shows([self._said(_HELLO)], "Hello")
        system: Message = self._said({"role": "system", "content": _FIRST})
        second: Message = self._said({"role": "system", "content": _SECOND})
        hello, hi = self._said(_HELLO), self._said(_HI)
        users = [self._said({"role": "user", "content": text}) for text in (_FIRST, _SECOND)]
        answers = [self._said({"role": "assistant", "content": text}) for text in (_FIRST, _SECOND)]
        developer = self._said({"role": "developer", "content": _SECOND})
        calls = self._shows_calls()
        return TemplateCapabilities(
            user=works,
            system=not works or self._shows([system, hello], _FIRST),
            several_systems=self._shows([system, second, hello], _FIRST, _SECOND),
            late_systems=self._shows([second, hello, hi, system, hello], _FIRST, _SECOND)
            and self._shows([second, hello, hi, hello, system], _FIRST, _SECOND),
            system_alone=not works or self._shows([system], _FIRST, *([_NAME] if self._shows([hello], _NAME) else [])),
            system_before_results=not calls
            or self._shows([self._said({"role": "system", "content": _FOURTH}), *self._exchange()], _FOURTH),
            developer="developer" in constants and self._shows([developer, hello], _SECOND),
            consecutive=not works
            or (self._shows([*users], _FIRST, _SECOND) and self._shows([hello, *answers, hello], _FIRST, _SECOND)),
            text_content=text_content or not user_parts,
            content_parts=self._roles_with_parts(),
            tools=self._tools is not None and self._shows([hello], _NAME, _OTHER, _THIRD),
            bare_tools=self._tools is not None and self._shows_bare_tool(),
            calls=calls,
            results=(calls or "tool" in constants) and self._shows(self._exchange(), _SECOND),
            null_content=calls and self._takes_null(),
            empty_content=self._empty,
            text_beside_calls=calls
            and self._shows(self._exchange(self._content(_FOURTH)), _FOURTH, _FIRST)
            and self._shows([*self._exchange(self._content(_FOURTH)), hi, hello], _FOURTH, _FIRST),
            parallel_calls=not calls or self._shows(self._parallel(), _FIRST, _FOURTH),
            arguments=self._argument_forms() if calls else ("text", "mapping"),
            call_ids=self._call_ids() if calls else "any",
            result_names=self._shows_result_name(),
            reasoning_key=self._reasoning_key(),
        )

    def _roles_with_parts(self) -> tuple[str, ...]:
        hello = self._said(_HELLO)
        by_role = {
            "system": [_in_parts("system"), hello],
            "user": [_in_parts("user")],
            "assistant": [hello, _in_parts("assistant"), hello],
            "tool": [*self._exchange()[:-1], {**self._exchange()[-1], **_in_parts("tool")}],
        }
        return tuple(role for role, messages in by_role.items() if self._shows(messages, _FIRST, _FOURTH))

    def _said(self, message: Message) -> Message:
        return {**message, "content": self._content(message["content"])}

    def _call(self, name: str, short: str, n: int, tag: str = _FIRST) -> dict[str, Any]:
        arguments: Any = {"blorb": tag}
        if self._arguments == "text":
            arguments = json.dumps(arguments)
        return {
            "id": self._ids(short, name, n),
            "type": "function",
            "function": {"name": name, "arguments": arguments},
        }

    def _exchange(self, content: Any = "", name: str | None = None) -> list[Message]:
        """A user's message, a call and its result; the empty ``content`` is written as the template wants it."""
        call = self._call(_NAME, _SHORT, 0)
        result = {"role": "tool", "tool_call_id": call["id"], "content": self._content(_SECOND), "name": name or _NAME}
        said = self._empty if content == "" else content
        return [self._said(_HELLO), {"role": "assistant", "content": said, "tool_calls": [call]}, result]

    def _takes_null(self) -> bool:
        """Whether null beside a call becomes what the empty text becomes, or at least no word of its own."""
        null, empty = (self._rendered(self._exchange(content), self._tools) for content in (None, ""))
        return null is not None and _FIRST in null and (empty is None or null.count("None") == empty.count("None"))

    def _parallel(self) -> list[Message]:
        calls = [self._call(_NAME, _SHORT, 0), self._call(_OTHER, _OTHER_SHORT, 1, _FOURTH)]
        results = [
            {"role": "tool", "tool_call_id": call["id"], "content": self._content(_SECOND), "name": name}
            for call, name in zip(calls, (_NAME, _OTHER), strict=True)
        ]
        return [self._said(_HELLO), {"role": "assistant", "content": self._empty, "tool_calls": calls}, *results]

    def _shows_calls(self) -> bool:
        """Whether calls are shown; settles on ids, arguments and empty content for all later probes."""
        for self._ids in (_short_ids, _named_ids):
            for self._empty in ("", None):
                for self._arguments in ("mapping", "text"):
                    if self._shows(self._exchange(), _NAME, _FIRST):
                        return True
        self._ids, self._empty, self._arguments = _short_ids, "", "mapping"
        return False

    def _call_ids(self) -> CallIds:
        if self._ids is _named_ids:
            return "named"
        self._ids = lambda short, name, n: _LONG + short
        takes_all = self._shows(self._exchange(), _NAME)
        self._ids = _short_ids
        return "any" if takes_all else "short"

    def _argument_forms(self) -> tuple[ArgumentsForm, ...]:
        forms = list[ArgumentsForm]()
        before = self._arguments
        for form in ("text", "mapping"):
            self._arguments = form
            text = self._rendered(self._exchange(), self._tools)
            # A text must stand as it is, not quoted once more.
            if text is not None and _FIRST in text and '\\"blorb' not in text:
                forms.append(form)
        self._arguments = before
        return tuple(forms) or ("mapping",)

    def _shows_bare_tool(self) -> bool:
        text = self._rendered([self._said(_HELLO)], [{"type": "function", "function": {"name": _NAME}}])
        return text is not None and _NAME in text

    def _shows_result_name(self) -> bool:
        """Whether the name at a result changes what is written, though it follows its call."""
        named, other = (self._rendered(self._exchange(name=name), None) for name in (_NAME, "blorb_quendor"))
        return other is not None and named != other

    def _reasoning_key(self) -> str | None:
        for key in REASONING_KEYS:
            call = {
                "role": "assistant",
                "content": self._empty,
                key: _THIRD,
                "tool_calls": [self._call(_NAME, _SHORT, 0)],
            }
            said = {"role": "assistant", "content": self._content(_FIRST), key: _THIRD}
            for messages in (
                [self._said(_HELLO), said],
                [self._said(_HELLO), said, self._said(_HELLO)],
                [self._said(_HELLO), call, self._exchange()[-1]],
            ):
                tools = None if self._tools is None else [_tool(_NAME, "Blorbs")]
                text = self._rendered(messages, tools)
                if text is not None and _THIRD in text:
                    return key
        return None

    def _shows(self, messages: Sequence[Message], *words: str) -> bool:
        text = self._rendered(messages, self._tools)
        # In quotes after its key it is Python's or JSON's idea of a list of parts.
        return text is not None and all(
            word in text and not re.search(f"text['\"]: *['\"]{word}", text) for word in words
        )

    def _rendered(self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None) -> str | None:
        try:
            return self._render(Conversation(messages, tools))
        except (ConversationError, ChatTemplateError):
            return None


def _in_parts(role: str) -> Message:
    return {"role": role, "content": [{"type": "text", "text": text} for text in (_FIRST, _FOURTH)]}


def _short_ids(short: str, name: str, n: int) -> str:
    return short


def _named_ids(short: str, name: str, n: int) -> str:
    return f"functions.{name}:{n}"


def _tool(name: str, blorb: str = _THIRD) -> dict[str, Any]:
    parameters = {**_PARAMETERS, "properties": {"blorb": {"type": "string", "description": blorb}}}
    return {"type": "function", "function": {"name": name, "description": "Does it.", "parameters": parameters}}
