"""ControlText: keeps text in messages from becoming control tokens (prompt injection by special tokens).

A tokenizer reads ``<|im_end|>`` as the end of a turn, also inside a message. So that only the template's own words
become control tokens, the conversation is **veiled** before it is rendered: in everything said, each character that
a control token begins or ends with (``<``, ``>``, ``[``…) is replaced by one that occurs nowhere in it. The template
trims, slices and joins as usual, lengths are the same, and afterwards each such character tells where it came from.
Lifted, the text is encoded as a whole. Only if that makes a control token out of a character that was veiled, it
is encoded again by a tokenizer in which the template's tokens have secret spellings and the others are text.

What counts as a control token: added tokens that the tokenizer calls special, that the template spells, or that
look like ``<|…|>``. In what the assistant said only the special ones do: its tool calls and thoughts
(``<tool_call>``, ``</think>``) were tokens when it said them. A text that the template compares with (``<<SYS>>``,
``</think>``) is not veiled from it unless it is, or could become part of, a control token.

Limits: a control token that is a word (``sop``) is not told from the word; a filter that writes such characters
otherwise (``escape``) leaves them as they are in what was said, and one that sorts puts them last.
"""

import json
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from edgegen.chat.conversation import ROLES, Conversation
from edgegen.errors import ConversationError, refuse_any
from edgegen.tokenizer import AddedToken, RespelledTokenizer, Tokenizer, looks_like_control, secret_spelling

_VEILS = range(0x20000, 0x2A6D0)
"""CJK Extension B: printable, without case, left alone by Unicode's normal forms."""


@dataclass(frozen=True, slots=True)
class _Speaker:
    """How the texts of one kind of role are veiled: ``kept`` matches what is left as it is."""

    kept: re.Pattern[str] | None

    def veil(self, text: str, veils: dict[int, str]) -> str:
        if self.kept is None:
            return text.translate(veils)
        pieces = self.kept.split(text)  # every second piece is a match
        return "".join(piece if n % 2 else piece.translate(veils) for n, piece in enumerate(pieces))


@dataclass(frozen=True, slots=True)
class VeiledConversation:
    """A conversation to render, and how to tell afterwards what in the rendering was said."""

    conversation: Conversation
    said: dict[str, str]
    """The veils and what is under them."""

    def lift(self, rendered: str) -> tuple[str, str]:
        """The rendering as it stands under the veils, and veiled, character for character."""
        for veil in self.said:  # a template's tojson may have written them as escapes
            rendered = rendered.replace(_escape(veil), veil)
        return rendered.translate({ord(veil): under for veil, under in self.said.items()}), rendered


class ControlText:
    """The control tokens of one tokenizer under one template: ``source`` is its text, ``constants`` its strings."""

    def __init__(self, tokenizer: Tokenizer, source: str, constants: Collection[str]) -> None:
        self._tokenizer = tokenizer
        self._source = source
        self._constants = frozenset(constants)
        added = tokenizer.added_tokens
        self._control = {
            token_id: token
            for token_id, token in added.items()
            if _ends(token.content) and (token.special or token.content in source or looks_like_control(token.content))
        }
        self._triggers = sorted({end for token in self._control.values() for end in _ends(token.content)})
        special = [token.content for token in self._control.values() if token.special]
        spoken = [token.content for token in added.values() if not token.special]
        everything = [token.content for token in self._control.values()]
        self._others = _Speaker(self._kept(constants, everything))
        self._assistant = _Speaker(self._kept([*constants, *spoken], special))
        self._apart = _Apart(tokenizer, self._control)

    @property
    def ids(self) -> Collection[int]:
        """The ids of the control tokens."""
        return self._control.keys()

    def veil(self, conversation: Conversation) -> VeiledConversation:
        """The conversation to render in place of ``conversation``.

        Raises:
            ConversationError: a role that the template does not name would spell a control token (``<|`` role ``|>``).
        """
        self._check_roles(conversation)
        texts: list[str] = []

        def collect(text: str, role: str) -> str:
            texts.append(text)
            return text

        conversation.map_texts(collect)
        said = "".join(texts)
        if not any(trigger in said for trigger in self._triggers):
            return VeiledConversation(conversation, {})
        taken = said + self._source
        free = (veil for veil in map(chr, _VEILS) if veil not in taken and _escape(veil) not in taken)
        said_under = {veil: trigger for trigger, veil in zip(self._triggers, free, strict=False)}
        if len(said_under) < len(self._triggers):
            raise ConversationError("the conversation uses every character that could mark it: shorten it.")
        veils = {ord(trigger): veil for veil, trigger in said_under.items()}

        def veiled(text: str, role: str) -> str:
            speaker = self._assistant if role.startswith("assistant") else self._others
            return speaker.veil(text, veils)

        return VeiledConversation(conversation.map_texts(veiled), said_under)

    def encode(self, text: str, veiled: str) -> list[int]:
        """The ids of a lifted rendering, control tokens only where no character of them was veiled.

        Raises:
            ConversationError: this vocabulary cannot spell a control token as text.
        """
        ids, spans = self._tokenizer.encode_with_spans(text)
        if text == veiled:
            return ids
        control = [(token_id, *span) for token_id, span in zip(ids, spans, strict=True) if token_id in self._control]
        own = [token for token in control if text[token[1] : token[2]] == veiled[token[1] : token[2]]]
        return ids if own == control else self._apart.encode(text, own)

    def _check_roles(self, conversation: Conversation) -> None:
        problems = [
            f"messages[{n}].role is {role!r}, which is part of the control token {token.content!r}"
            for n, role in enumerate(message["role"] for message in conversation.messages)
            if role not in ROLES and role not in self._constants
            for token in self._control.values()
            if role in token.content
        ]
        refuse_any(problems, ConversationError)

    def _kept(self, constants: Iterable[str], control: Collection[str]) -> re.Pattern[str] | None:
        kept = [
            text
            for text in {*constants}
            if any(trigger in text for trigger in self._triggers) and not any(_overlap(text, c) for c in control)
        ]
        alternatives = "|".join(re.escape(text) for text in sorted(kept, key=lambda text: (-len(text), text)))
        return re.compile(f"({alternatives})") if kept else None


class _Apart:
    """The tokenizer with secret spellings of the control tokens, made when first needed."""

    def __init__(self, tokenizer: Tokenizer, control: dict[int, AddedToken]) -> None:
        self._tokenizer = tokenizer
        self._control = control
        self._spelling = secret_spelling(control)
        self._respelled: RespelledTokenizer | None = None

    def encode(self, text: str, spans: Sequence[tuple[int, int, int]]) -> list[int]:
        """The ids of ``text`` where ``spans`` (id, start, end) are its only control tokens."""
        if self._respelled is None:
            self._respelled = self._tokenizer.respelled(self._spelling)
        pieces: list[str] = []
        position = 0
        for token_id, start, end in spans:
            # A token can take in the spaces beside it; its secret spelling does so too.
            word = text[start:end].strip() or text[start:end]
            begin = start + text[start:end].index(word)
            pieces += [text[position:begin], self._spelling[token_id]]
            position = begin + len(word)
        ids = self._respelled.encode("".join([*pieces, text[position:]]))
        if [i for i in ids if i in self._control] != [token_id for token_id, _, _ in spans]:
            named = ", ".join(sorted(t.content for t in self._control.values() if t.content in text))
            raise ConversationError(f"this model's vocabulary cannot spell the control tokens {named} as plain text.")
        return ids


def _ends(token: str) -> set[str]:
    """The first and the last character of a control token that no word has."""
    signs = [character for character in token.strip() if not character.isalnum()]
    return {signs[0], signs[-1]} if signs else set()


def _overlap(a: str, b: str) -> bool:
    """Whether the two can share characters of one text."""
    shorter = min(len(a), len(b))
    return a in b or b in a or any(a[-n:] == b[:n] or b[-n:] == a[:n] for n in range(1, shorter))


def _escape(character: str) -> str:
    return json.dumps(character)[1:-1]
