"""PromptEncoder: turns prompts, texts or token ids, into checked token ids, and ids back into text."""

from collections.abc import Iterable, Mapping
from collections.abc import Sequence as Ids
from operator import index
from typing import TYPE_CHECKING, cast

from edgegen.errors import UsageError

if TYPE_CHECKING:
    from edgegen.generation.session import Session
    from edgegen.tokenizer import Tokenizer

Prompt = str | Ids[int]
"""A text, or the token ids it would have."""


class PromptEncoder:
    """Encodes and decodes for one model, and refuses ids that the model does not have.

    Attributes:
        bos_token_id: the beginning-of-sequence id, which an empty prompt stands for.
    """

    def __init__(self, tokenizer: "Tokenizer | None", vocab_size: int, bos_token_id: int | None = None) -> None:
        self.tokenizer = tokenizer
        self.vocab_size = vocab_size
        self.bos_token_id = bos_token_id
        self._spelled: dict[int, tuple[str, bytes | None]] = {}

    def encode(self, prompt: Prompt, what: str = "the prompt") -> list[int]:
        """The ids of a prompt; those of an empty one are the model's beginning-of-sequence id.

        ``what`` is what messages call it.

        Raises:
            UsageError: neither text nor ids, a text without a tokenizer, an empty prompt without such an id, or ids
                outside the vocabulary.
        """
        return self.begin(self.read(prompt, what), what)

    def read(self, text: Prompt, what: str, *, add_special_tokens: bool = True) -> list[int]:
        """The ids of a text, none of an empty one; ``what`` names it in errors.

        Raises:
            UsageError: neither text nor ids, a text without a tokenizer, or ids outside the vocabulary.
        """
        if isinstance(text, str):
            if self.tokenizer is None:
                raise UsageError(f"this bundle has no tokenizer: give {what} as a list of token ids.")
            try:
                text.encode()
            except UnicodeEncodeError as error:
                raise UsageError(f"{what} is no Unicode text: character {error.start} is half of one.") from None
            return self._known(self.tokenizer.encode(text, add_special_tokens=add_special_tokens), what)
        try:
            return self._known(_whole_numbers(text), what)
        except TypeError:
            if _is_conversation(text):
                raise UsageError(f"{what} is a list of messages: use llm.chat or llm.stream_chat for them.") from None
            raise UsageError(f"{what} must be a text or a list of token ids.") from None

    def begin(self, ids: list[int], what: str) -> list[int]:
        """``ids``, or where there are none the model's beginning-of-sequence id.

        Raises:
            UsageError: it has none.
        """
        if ids:
            return ids
        if self.bos_token_id is None:
            raise UsageError(f"{what} is empty, and this model has no token to begin a text with: give some text.")
        return [self.bos_token_id]

    def encode_continuation(self, session: "Session", prompt: Prompt) -> list[int]:
        """The ids of all that a session holds, and of ``prompt`` after it.

        Raises:
            UsageError: as :meth:`encode`; or there is no prompt, and the last answer ended by itself.
        """
        if not session.ids:
            return self.encode(prompt)
        new = self.read(prompt, "the prompt", add_special_tokens=False)
        if not new and not session.can_continue:
            raise UsageError("the session's last answer ended by itself: give a prompt to go on with.")
        return [*session.ids, *new]

    def decode(self, ids: Iterable[int], *, skip_special_tokens: bool = True) -> str:
        """The text of ``ids``.

        Raises:
            UsageError: they are no ids, or outside the vocabulary, or there is no tokenizer.
        """
        if self.tokenizer is None:
            raise UsageError("this bundle has no tokenizer: its token ids have no text.")
        try:
            known = self._known(_whole_numbers(ids), "the ids")
        except TypeError:
            raise UsageError("what is decoded must be a list of token ids.") from None
        return self.tokenizer.decode(known, skip_special_tokens=skip_special_tokens)

    def spell(self, token_id: int) -> tuple[str, bytes | None]:
        """The text of a token by itself, and its bytes where the text does not tell them."""
        if token_id not in self._spelled:
            self._spelled[token_id] = self._spell(token_id)
        return self._spelled[token_id]

    def _spell(self, token_id: int) -> tuple[str, bytes | None]:
        tokenizer = self.tokenizer
        if tokenizer is None:
            return "", None
        spelled = tokenizer.token_bytes(token_id) if tokenizer.spells_bytes else None
        if spelled is None:  # a special token, or one that depends on its neighbours
            return tokenizer.decode([token_id], skip_special_tokens=False), None
        text = spelled.decode("utf-8", "replace")
        return text, None if text.encode() == spelled else spelled

    def control_ids(self, texts: Iterable[str]) -> dict[str, int]:
        """Return the ids of those ``texts`` that are special tokens, by text."""
        if self.tokenizer is None:
            return {}
        special = {token.content: n for n, token in self.tokenizer.added_tokens.items() if token.special}
        return {text: special[text] for text in texts if text in special}

    def _known(self, ids: list[int], what: str) -> list[int]:
        outside = [token for token in ids if not 0 <= token < self.vocab_size]
        if outside:
            raise UsageError(f"token id {outside[0]} of {what} is outside the model's vocabulary of {self.vocab_size}.")
        return ids


def _whole_numbers(ids: Iterable[int]) -> list[int]:
    """``ids`` as Python integers.

    Raises:
        TypeError: they are no whole numbers, or bytes or text.
    """
    if isinstance(ids, str | bytes | bytearray):  # bytes are whole numbers too, but not token ids
        raise TypeError
    return [index(token) for token in ids]


def _is_conversation(prompt: object) -> bool:
    from edgegen.chat import Conversation

    messages = cast(Ids[object], prompt) if isinstance(prompt, list | tuple) else ()
    return isinstance(prompt, Conversation) or any(isinstance(message, Mapping) for message in messages[:1])
