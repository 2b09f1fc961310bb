"""Prompts of ``/api/generate``, which depend on the model, and the conversation that ``context`` carries."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from edgegen.chat import Conversation
from edgegen.errors import ConversationError
from edgegen.llm import LLM
from edgegen.server.http.api_error import ApiError
from edgegen.server.http.json_body import parse_json
from edgegen.server.http.options import MOST_MESSAGES
from edgegen.server.wire.wire import ChatPrompt


@dataclass(frozen=True, slots=True)
class Memory:
    """Conversation before a prompt: messages of a chat, or text, where the model has no chat template."""

    messages: tuple[Mapping[str, Any], ...] = ()
    text: str = ""

    @classmethod
    def read(cls, context: Sequence[int], problems: list[str]) -> "Memory":
        """Read the memory that ``context``, bytes, carries; anything else is a problem."""
        try:
            found = parse_json(bytes(context))
        except ApiError:
            found = dict[str, Any]()
        messages, text = found.get("messages"), found.get("text")
        if isinstance(messages, list) and len(cast(list[object], messages)) <= MOST_MESSAGES:
            try:
                return cls(tuple(Conversation(cast(list[Mapping[str, Any]], messages)).messages))
            except ConversationError:
                pass
        elif isinstance(text, str):
            return cls(text=text)
        problems.append("context: what an earlier answer has given expected")
        return cls()

    @property
    def context(self) -> list[int]:
        told = {"messages": self.messages} if self.messages else {"text": self.text}
        return [*json.dumps(told, ensure_ascii=False).encode()]


@dataclass(frozen=True, slots=True)
class GeneratePrompt:
    """The user's next message; without a chat template it is text that goes on.

    Attributes:
        before: what it follows.
        thinks: the model is asked to think.
    """

    prompt: str
    system: str = ""
    before: Memory = Memory()
    thinks: bool = False

    def memory(self, llm: LLM) -> Memory:
        """Return the conversation that the answer follows."""
        before = self.before
        if not (self.system or before.messages) and (before.text or llm.chat_template.is_fallback):
            return Memory(text=before.text + self.prompt)
        messages = list(before.messages)
        if self.system:
            messages[:1] = [] if messages and messages[0]["role"] == "system" else messages[:1]
            messages.insert(0, {"role": "system", "content": self.system})
        return Memory((*messages, {"role": "user", "content": self.prompt}))

    def resolve(self, llm: LLM) -> str | ChatPrompt:
        memory = self.memory(llm)
        if memory.messages:
            return ChatPrompt(Conversation(memory.messages))
        if self.thinks:
            said = "think: this model has no chat template by which it could be asked to think: leave it out."
            raise ApiError(400, said, param="think")
        return memory.text
