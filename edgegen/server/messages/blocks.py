"""Reads Anthropic's messages, which are made of content blocks, as the messages of a conversation."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from reprlib import repr as shortened
from typing import Any, cast

from edgegen.errors import did_you_mean
from edgegen.server.options import MOST_MESSAGES

BLOCKS: Mapping[str, tuple[str, ...]] = {
    "text": ("text", "citations"),
    "thinking": ("thinking", "signature"),
    "redacted_thinking": ("data",),
    "tool_use": ("id", "name", "input", "caller", "toolset_name"),
    "tool_result": ("tool_use_id", "content", "is_error", "toolset_name"),
    "tool_reference": ("tool_name",),
}
"""The blocks that are read, with their fields beside ``type`` and ``cache_control``."""

_ALLOWED: Mapping[str, tuple[str, ...]] = {
    "system": ("text",),
    "user": ("text", "tool_result"),
    "assistant": ("text", "thinking", "redacted_thinking", "tool_use"),
    "a tool result": ("text", "tool_reference"),
}
"""The blocks that each may have."""

_BILLING = "x-anthropic-billing-header:"
"""Begins a block that Claude Code writes for Anthropic's billing, with figures that change; no model is to read it."""

_MOST_PROBLEMS = 32
"""More are not looked for: a body has room for a hundred thousand."""

_SIGNATURE = "edgegen"
"""The signature of a thinking block; behind a colon, the thoughts of one that does not show them."""


def signature(thoughts: str, *, shown: bool) -> str:
    """The signature of a thinking block. It carries the thoughts that a client has not asked to see.

    The next request brings them back, and then the model reads them as it had written them.
    """
    return _SIGNATURE if shown else f"{_SIGNATURE}:{base64.b64encode(thoughts.encode()).decode()}"


@dataclass(slots=True)
class ReadMessages:
    """
    Attributes:
        messages: of the roles system, user, assistant and tool.
        continued: the last one is the beginning of the answer.
        loaded: names of tools that were to be loaded later, and that a tool search has found since.
    """

    messages: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    continued: bool = False
    loaded: set[str] = field(default_factory=set[str])


def read_messages(system: object, messages: object, problems: list[str]) -> ReadMessages:
    """What ``system`` and ``messages`` of a body say; what is wrong with them is appended to ``problems``."""
    return _Reader(problems).read(system, messages)


def strange_keys(where: str, entry: Mapping[str, object], known: Sequence[str]) -> list[str]:
    """The problem of each key of ``entry`` that is not ``known``, of the first few of them."""
    strange = islice((key for key in entry if key not in known), _MOST_PROBLEMS)
    return [f"{where} has no {shortened(key)}{did_you_mean(key, known)}" for key in strange]


@dataclass(slots=True)
class _Turn:
    """What a role says at once."""

    role: str
    said: list[str] = field(default_factory=list[str])
    thoughts: list[str] = field(default_factory=list[str])
    calls: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    more: Mapping[str, Any] = field(default_factory=dict[str, Any])

    def message(self) -> dict[str, Any]:
        made: dict[str, Any] = {"role": self.role, "content": "\n".join(self.said), **self.more}
        if self.thoughts:
            made["reasoning_content"] = "\n".join(self.thoughts)
        if self.calls:
            made["tool_calls"] = self.calls
        return made


class _Reader:
    def __init__(self, problems: list[str]) -> None:
        self._problems = problems
        self._read = ReadMessages()
        self._turns = list[_Turn]()
        self._calls = dict[str, str]()

    def read(self, system: object, messages: object) -> ReadMessages:
        if system is not None:
            self._system("system", system)
        if not isinstance(messages, list) or not messages:
            self._problems.append("messages: a list of messages such as {'role': 'user', 'content': 'Hello'} expected")
            return self._read
        found = cast(list[object], messages)
        if len(found) > MOST_MESSAGES:
            self._problems.append(f"messages: at most {MOST_MESSAGES}, found {len(found)}")
            return self._read
        last_user = max((n for n, message in enumerate(found) if _role(message) == "user"), default=-1)
        for n, message in enumerate(found):
            self._message(f"messages[{n}]", message, behind_user=n > last_user)
        self._check_last(f"messages[{len(found) - 1}]")
        self._read.messages = [turn.message() for turn in self._turns]
        return self._read

    def _message(self, where: str, message: object, *, behind_user: bool) -> None:
        role = _role(message)
        if not isinstance(message, dict) or role not in ("user", "assistant", "system"):
            near = did_you_mean(role, ("user", "assistant", "system"))
            self._problems.append(f"{where}: a message whose role is user, assistant or system expected{near}")
            return
        entry = cast(dict[str, object], message)
        more = ("clear_at", "output_config") if role == "system" else ()
        self._problems += strange_keys(where, entry, ("role", "content", *more))
        content, where = entry.get("content"), f"{where}.content"
        if role == "system":
            if entry.get("clear_at") != "next_user_message" or behind_user:
                self._system(where, content)
        elif role == "user":
            self._user(where, content)
        else:
            self._assistant(where, content)

    def _system(self, where: str, content: object) -> None:
        """A system message between others is told in the user's turn: few templates have a place for it."""
        role = "system" if all(turn.role == "system" for turn in self._turns) else "user"
        for _, block in self._blocks(where, content, "system"):
            if not block["text"].startswith(_BILLING):
                self._turn(role).said.append(block["text"])

    def _user(self, where: str, content: object) -> None:
        for place, block in self._blocks(where, content, "user"):
            if block["type"] == "text":
                self._turn("user").said.append(block["text"])
            else:
                self._tool_result(place, block)

    def _tool_result(self, where: str, block: Mapping[str, Any]) -> None:
        call = block.get("tool_use_id")
        if not isinstance(call, str) or call not in self._calls:
            said = shortened(call)
            self._problems.append(f"{where}.tool_use_id: the id of an earlier tool_use block expected, found {said}")
            return
        texts, failed = list[str](), block.get("is_error", False)
        if not isinstance(failed, bool):
            self._problems.append(f"{where}.is_error: true or false expected")
        given = block.get("content")
        for place, inner in [] if given is None else self._blocks(f"{where}.content", given, "a tool result"):
            if inner["type"] == "text":
                texts.append(inner["text"])
            elif self._is_text(place, inner, "tool_name"):
                self._read.loaded.add(inner["tool_name"])
                texts.append(f"{inner['tool_name']} can be called.")
        if failed:
            texts[:1] = ["Error: " + "".join(texts[:1])]
        self._turns.append(_Turn("tool", texts, more={"tool_call_id": call, "name": self._calls[call]}))

    def _assistant(self, where: str, content: object) -> None:
        turn = self._turn("assistant")
        for place, block in self._blocks(where, content, "assistant"):
            match block["type"]:
                case "text":
                    turn.said.append(block["text"])
                case "thinking":
                    if self._is_text(place, block, "thinking"):
                        turn.thoughts += filter(None, [block["thinking"] or _hidden(block.get("signature"))])
                case "tool_use":
                    turn.calls += self._tool_use(place, block)
                case _:  # redacted: only Anthropic's servers can read it
                    pass

    def _tool_use(self, where: str, block: Mapping[str, Any]) -> list[dict[str, Any]]:
        whole = self._is_text(where, block, "id") and self._is_text(where, block, "name")
        if not isinstance(block.get("input"), dict):
            self._problems.append(f"{where}.input: an object expected, found {shortened(block.get('input'))}")
            return []
        if not whole:
            return []
        self._calls[block["id"]] = block["name"]
        function = {"name": block["name"], "arguments": block["input"]}
        return [{"id": block["id"], "type": "function", "function": function}]

    def _check_last(self, where: str) -> None:
        if not self._turns or (last := self._turns[-1]).role != "assistant":
            return
        if last.calls:
            self._problems.append(f"{where} calls tools: a message of the user with their tool_result blocks expected")
        elif not any(last.said):
            self._problems.append(f"{where} is the beginning of the answer, and has no text")
        self._read.continued = True

    def _turn(self, role: str) -> _Turn:
        """The turn of ``role`` that goes on, or a new one: many templates want the roles to alternate."""
        if not self._turns or self._turns[-1].role != role:
            self._turns.append(_Turn(role))
        return self._turns[-1]

    def _blocks(self, where: str, content: object, owner: str) -> list[tuple[str, dict[str, Any]]]:
        """The blocks that are well-formed, each with its place."""
        if isinstance(content, str):
            return [(where, {"type": "text", "text": content})]
        if not isinstance(content, list):
            self._problems.append(f"{where}: text or a list of content blocks expected, found {shortened(content)}")
            return []
        right = list[tuple[str, dict[str, Any]]]()
        for n, block in enumerate(cast(list[object], content)):
            if len(self._problems) < _MOST_PROBLEMS and self._is_block(f"{where}[{n}]", block, owner):
                right.append((f"{where}[{n}]", cast(dict[str, Any], block)))
        return right

    def _is_block(self, where: str, block: object, owner: str) -> bool:
        allowed = _ALLOWED[owner]
        if not isinstance(block, dict):
            self._problems.append(f"{where}: a block such as {{'type': 'text', 'text': 'Hello'}} expected")
            return False
        entry = cast(dict[str, object], block)
        kind = entry.get("type")
        if kind in ("image", "document"):
            self._problems.append(f"{where} is of type {kind!r}, and models here read text only: leave it out")
            return False
        if not isinstance(kind, str) or kind not in allowed:
            near = did_you_mean(kind, allowed) if isinstance(kind, str) else ""
            self._problems.append(
                f"{where}: a block of type {' or '.join(allowed)} expected, found {shortened(kind)}{near}"
            )
            return False
        self._problems += strange_keys(where, entry, ("type", "cache_control", *BLOCKS[kind]))
        return kind != "text" or self._is_text(where, entry, "text")

    def _is_text(self, where: str, block: Mapping[str, object], name: str) -> bool:
        right = isinstance(block.get(name), str)
        if not right:
            self._problems.append(f"{where}.{name}: text expected, found {shortened(block.get(name))}")
        return right


def _role(message: object) -> str:
    role = cast(dict[str, object], message).get("role") if isinstance(message, dict) else None
    return role if isinstance(role, str) else ""


def _hidden(given: object) -> str:
    """The thoughts that a signature of ours carries."""
    name, _, text = given.partition(":") if isinstance(given, str) else ("", "", "")
    try:
        return base64.b64decode(text, validate=True).decode() if name == _SIGNATURE else ""
    except ValueError:
        return ""
