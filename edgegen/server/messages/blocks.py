"""Reads Anthropic's messages, which are made of content blocks, as the messages of a conversation."""

import base64
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from reprlib import repr as shortened
from typing import Any

_BILLING = "x-anthropic-billing-header:"
"""Begins a block that Claude Code writes for Anthropic's billing, with figures that change; no model is to read it."""

_SIGNATURE = "edgegen"
"""The signature of a thinking block; after a colon, the thoughts of one that does not show them."""


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


_Block = Mapping[str, Any]
_Content = str | Sequence[_Block]


def read_messages(system: _Content | None, messages: Sequence[_Block], problems: list[str]) -> ReadMessages:
    """Read ``system`` and ``messages``, which fit their schemas; append their problems to ``problems``."""
    return _Reader(problems).read(system, messages)


@dataclass(slots=True)
class _Turn:
    """One turn of a role."""

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

    def read(self, system: _Content | None, messages: Sequence[_Block]) -> ReadMessages:
        self._system([] if system is None else system)
        last_user = max((n for n, message in enumerate(messages) if message["role"] == "user"), default=-1)
        for n, message in enumerate(messages):
            where, content = f"messages[{n}]", message["content"]
            if message["role"] == "user":
                self._user(f"{where}.content", content)
            elif message["role"] == "assistant":
                self._assistant(content)
            elif message.get("clear_at") != "next_user_message" or n > last_user:
                self._system(content)
        self._check_last(f"messages[{len(messages) - 1}]")
        self._read.messages = [turn.message() for turn in self._turns]
        return self._read

    def _system(self, content: _Content) -> None:
        for block in _blocks(content):
            if not block["text"].startswith(_BILLING):
                self._turn("system").said.append(block["text"])

    def _user(self, where: str, content: _Content) -> None:
        for n, block in enumerate(_blocks(content)):
            if block["type"] == "text":
                self._turn("user").said.append(block["text"])
            else:
                self._tool_result(f"{where}[{n}]", block)

    def _tool_result(self, where: str, block: _Block) -> None:
        call = block["tool_use_id"]
        if call not in self._calls:
            said = shortened(call)
            self._problems.append(f"{where}.tool_use_id: the id of an earlier tool_use block expected, found {said}")
            return
        texts = list[str]()
        for inner in _blocks(block.get("content") or []):
            if inner["type"] == "text":
                texts.append(inner["text"])
            else:
                self._read.loaded.add(inner["tool_name"])
                texts.append(f"{inner['tool_name']} can be called.")
        if block.get("is_error"):
            texts[:1] = ["Error: " + "".join(texts[:1])]
        self._turns.append(_Turn("tool", texts, more={"tool_call_id": call, "name": self._calls[call]}))

    def _assistant(self, content: _Content) -> None:
        turn = self._turn("assistant")
        for block in _blocks(content):
            match block["type"]:
                case "text":
                    turn.said.append(block["text"])
                case "thinking":
                    turn.thoughts += filter(None, [block["thinking"] or _hidden(block.get("signature"))])
                case "tool_use":
                    self._calls[block["id"]] = block["name"]
                    function = {"name": block["name"], "arguments": block["input"]}
                    turn.calls.append({"id": block["id"], "type": "function", "function": function})
                case _:  # redacted: only Anthropic's servers can read it
                    pass

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


def _blocks(content: _Content) -> Sequence[_Block]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def _hidden(given: object) -> str:
    """The thoughts that a signature of ours carries."""
    name, _, text = given.partition(":") if isinstance(given, str) else ("", "", "")
    try:
        return base64.b64decode(text, validate=True).decode() if name == _SIGNATURE else ""
    except ValueError:
        return ""
