"""Prompts of ``/api/generate``, which depend on the model, and the conversation that ``context`` carries."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from edgegen.chat import Conversation
from edgegen.errors import ConversationError
from edgegen.llm import LLM
from edgegen.server.api_error import ApiError
from edgegen.server.json_body import parse_json
from edgegen.server.options import MOST_MESSAGES
from edgegen.server.wire import ChatPrompt


@dataclass(frozen=True, slots=True)
class Memory:
    """What came before a prompt: messages of a chat, or text, where the model has no chat template."""

    messages: tuple[Mapping[str, Any], ...] = ()
    text: str = ""

    @classmethod
    def read(cls, context: Sequence[int], problems: list[str]) -> "Memory":
        """What ``context``, bytes, carries; anything else is a problem."""
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
        """What the answer follows."""
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


_FILLS = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    ("▁<PRE>", "▁<SUF>", "▁<MID>"),
    ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),
)
"""Tokens before a prefix, before its suffix, and before what is written between them: Qwen's and Gemma's, StarCoder's,
SantaCoder's, Code Llama's, DeepSeek's."""


def fill_tokens(known: Mapping[str, Any]) -> tuple[str, str, str] | None:
    """Those of a vocabulary, if it has them; models with others cannot fill in."""
    return next((tokens for tokens in _FILLS if all(token in known for token in tokens)), None)


@dataclass(frozen=True, slots=True)
class FillPrompt:
    """A text between a prefix and a suffix (FIM)."""

    prefix: str
    suffix: str

    def resolve(self, llm: LLM) -> list[int]:
        tokenizer, ids = llm.tokenizer, dict[str, int]()
        if tokenizer is not None:
            found = {token: tokenizer.token_to_id(token) for tokens in _FILLS for token in tokens}
            ids = {token: token_id for token, token_id in found.items() if token_id is not None}
        tokens = fill_tokens(ids)
        if tokens is None or tokenizer is None:
            said = "suffix: this model cannot fill in, as it has no tokens for a prefix and a suffix: leave it out."
            raise ApiError(400, said, param="suffix")
        texts = [
            tokenizer.encode(text, add_special_tokens=False) if text else [] for text in (self.prefix, self.suffix)
        ]
        before, between, after = (ids[token] for token in tokens)
        return tokenizer.frame([before, *texts[0], between, *texts[1], after])
