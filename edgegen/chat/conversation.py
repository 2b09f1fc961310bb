"""Conversation: the messages, tools and documents of a chat, checked before a chat template renders them."""

import difflib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeGuard, cast

from edgegen.errors import ConversationError, did_you_mean, sentence_or_list

Message = Mapping[str, Any]
"""``role`` and ``content``, and what else the template reads (``name``, ``tool_calls``, ``reasoning_content``…)."""

ROLES = ("system", "developer", "user", "assistant", "tool", "function")
"""The roles that any template may be given; others it has to know."""

RESERVED_VARIABLES = ("messages", "tools", "documents", "add_generation_prompt")
"""Names that a template reads and no variable of a conversation may have."""

_ROLE = re.compile(r"[A-Za-z][A-Za-z0-9_ -]*")
_PARTS = ("text", "refusal")
_PART_KEYS = ("type", "text", "cache_control", "prompt_cache_breakpoint", "annotations", "citations")
"""Fields of a part; all but the first two ask nothing of a model."""
_MESSAGES = "a list of messages such as {'role': 'user', 'content': 'Hello'}"


@dataclass(frozen=True, slots=True, repr=False)
class Conversation:
    """Messages, and what a template can be told beside them; the names are those of ``apply_chat_template``.

    ``content`` is a text, or a list of parts ``{"type": "text", "text": …}``. ``tools``: JSON schemas of functions;
    ``documents``: dicts, mostly of ``title`` and ``text``. ``continue_final_message`` leaves the last message open,
    to be continued; otherwise the template begins the assistant's next one, unless ``add_generation_prompt`` is
    False. ``variables``: further ones that the template reads, such as ``enable_thinking``. ``template``: the name of
    one, where the model has several; by default ``tool_use`` with tools, and ``default``.

    Raises:
        ConversationError: lists everything that is wrong with the messages and the rest.
    """

    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]] | None = None
    documents: Sequence[Mapping[str, Any]] | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool = False
    variables: Mapping[str, Any] = field(default_factory=dict[str, Any])
    template: str | None = None

    def __post_init__(self) -> None:
        problems = [*self._message_problems(), *self._other_problems()]
        if problems:
            raise ConversationError(sentence_or_list(problems))

    def __repr__(self) -> str:
        tools = f", {len(self.tools)} tools" if self.tools else ""
        return f"Conversation({len(self.messages)} messages{tools})"

    @property
    def generation_prompt(self) -> bool:
        return not self.continue_final_message if self.add_generation_prompt is None else self.add_generation_prompt

    def with_messages(self, messages: Sequence[Message]) -> Self:
        return replace(self, messages=messages)

    def map_texts(self, change: Callable[[str, str], str]) -> Self:
        """``change(text, role)`` in place of every text the template is given, but for roles and names of fields.

        Texts beside the messages have no role: the empty one.
        """

        def mapped(value: Any, role: str) -> Any:
            if isinstance(value, str):
                return change(value, role)
            if isinstance(value, Mapping):
                return mapped_items(cast(Mapping[Any, Any], value), role)
            if _is_sequence(value):
                return [mapped(inner, role) for inner in value]
            return value

        def mapped_items(items: Mapping[Any, Any], role: str) -> dict[Any, Any]:
            return {
                key if str(key).isidentifier() else mapped(key, role): mapped(inner, role)
                for key, inner in items.items()
            }

        return replace(
            self,
            messages=[{**mapped_items(message, message["role"]), "role": message["role"]} for message in self.messages],
            tools=mapped(self.tools, ""),
            documents=mapped(self.documents, ""),
            variables=mapped(self.variables, ""),
        )

    def _message_problems(self) -> list[str]:
        messages = cast(object, self.messages)
        if not _is_sequence(messages):
            return [f"messages must be {_MESSAGES}, not {_kind(messages)}"]
        if not messages:
            return [f"messages is empty: give {_MESSAGES}"]
        return [f"messages[{n}]{problem}" for n, message in enumerate(messages) for problem in _problems(message)]

    def _other_problems(self) -> list[str]:
        problems: list[str] = []
        for name, value in (("tools", self.tools), ("documents", self.documents)):
            if value is not None and not (_is_sequence(value) and all(isinstance(item, Mapping) for item in value)):
                problems.append(f"{name} must be a list of dicts, not {_kind(value)}")
        if self.continue_final_message and self.add_generation_prompt:
            problems.append("continue_final_message and add_generation_prompt exclude each other")
        variables = cast(object, self.variables)
        if not isinstance(variables, Mapping) or not all(isinstance(key, str) for key in cast(Any, variables)):
            return [*problems, f"variables must be a dict of names, not {_kind(cast(object, variables))}"]
        problems.extend(
            f"{name!r} is no template variable of its own: pass it as an argument"
            for name in RESERVED_VARIABLES
            if name in variables
        )
        problems.extend(_text_problems("the tools", self.tools))
        problems.extend(_text_problems("the documents", self.documents))
        problems.extend(_text_problems("the variables", self.variables))
        return problems


def text_of(content: Any) -> str:
    """The text of a message's content: its own, or its parts in lines."""
    if isinstance(content, str):
        return content
    return "\n".join(part[part["type"]] for part in content or ())


def _problems(message: object) -> list[str]:
    if not isinstance(message, Mapping):
        return [f" must be a dict of role and content, not {_kind(message)}"]
    keys = cast(Mapping[Any, Any], message)
    return [
        *_role_problems(keys),
        *_content_problems(keys),
        *_text_problems("", {**keys, "role": None, "content": None}),
    ]


def _role_problems(message: Mapping[Any, Any]) -> list[str]:
    if "role" not in message:
        return [f" has no role{_near('role', message)}"]
    role = message["role"]
    if not isinstance(role, str):
        return [f".role must be a text, not {_kind(role)}"]
    return [] if _ROLE.fullmatch(role) else [f".role is {role!r}, which is no name{did_you_mean(role, ROLES)}"]


def _content_problems(message: Mapping[Any, Any]) -> list[str]:
    content = message.get("content")
    if content is None:
        # What an assistant did instead of speaking: tool_calls, function_call, reasoning_content, thinking…
        spoke_otherwise = message.get("role") == "assistant" and message.keys() - {"role", "content"}
        return [] if spoke_otherwise else [f" has no content{_near('content', message)}"]
    if isinstance(content, str):
        return _text_problems(".content", content)
    if not _is_sequence(content):
        return [f".content must be a text or a list of text parts, not {_kind(content)}"]
    return [problem for n, part in enumerate(content) for problem in _part_problems(f".content[{n}]", part)]


def _part_problems(where: str, part: object) -> list[str]:
    if not isinstance(part, Mapping):
        return [f"{where} must be a dict such as {{'type': 'text', 'text': 'Hello'}}, not {_kind(part)}"]
    keys = cast(Mapping[Any, Any], part)
    kind = keys.get("type")
    if kind not in _PARTS:
        return [f"{where} is of type {kind!r}: only text parts are understood"]
    unknown = [
        f"{where} has no {key!r}{did_you_mean(str(key), _PART_KEYS)}" for key in keys if key not in (kind, *_PART_KEYS)
    ]
    if not isinstance(keys.get(kind), str):
        return [*unknown, f"{where}.{kind} must be a text, not {_kind(keys.get(kind))}"]
    return [*unknown, *_text_problems(f"{where}.{kind}", keys[kind])]


def _text_problems(where: str, value: Any) -> list[str]:
    """Return the problems of text in ``value`` that cannot be encoded: halves of surrogate pairs."""
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            return [f"{where} is no Unicode text: character {error.start} is half of one"]
        return []
    if isinstance(value, Mapping):
        items = cast(Mapping[Any, Any], value).items()
        return [
            p for key, inner in items for p in [*_text_problems(where, key), *_text_problems(f"{where}.{key}", inner)]
        ]
    if _is_sequence(value):
        return [p for n, inner in enumerate(value) for p in _text_problems(f"{where}[{n}]", inner)]
    return []


def _near(wanted: str, message: Mapping[Any, Any]) -> str:
    """The key that may have been meant to be ``wanted``."""
    near = difflib.get_close_matches(wanted, [str(key) for key in message if key not in ("role", "content")], n=1)
    return f" (is {near[0]!r} meant to be it?)" if near else ""


def _is_sequence(value: object) -> TypeGuard[Sequence[Any]]:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _kind(value: object) -> str:
    kinds = {"NoneType": "None", "str": "a text", "dict": "a dict", "list": "a list", "int": "an int"}
    return kinds.get(type(value).__name__, type(value).__name__)
