"""Backend: what reads one ``tokenizer.json`` for ``Tokenizer``; the tokenizers library, or our own code for its
compiled form."""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol


class AddedToken(Protocol):
    """A token that is looked for in a text before all others; ``tokenizers.AddedToken``."""

    @property
    def content(self) -> str: ...
    @property
    def special(self) -> bool: ...
    @property
    def single_word(self) -> bool: ...
    @property
    def lstrip(self) -> bool: ...
    @property
    def rstrip(self) -> bool: ...
    @property
    def normalized(self) -> bool: ...


class Encoding(Protocol):
    """Token ids of a text, and the characters of it that each stands for, as (start, end)."""

    @property
    def ids(self) -> list[int]: ...
    @property
    def offsets(self) -> list[tuple[int, int]]: ...


class RespelledTokenizer(Protocol):
    """A tokenizer in which some added tokens are written otherwise: what spelled them is text like any other."""

    def encode(self, text: str) -> list[int]:
        """The ids of ``text``, those of the tokenizer that this one was made of."""
        ...


class Backend(Protocol):
    """A tokenizer as its file has it, but for padding and truncation, which are off.

    Attributes:
        added_tokens: those looked for in a text before all others, by id.
        decoder: its JSON; empty if it has none.
        vocab_size: how many tokens there are, added ones included.
    """

    @property
    def added_tokens(self) -> Mapping[int, AddedToken]: ...
    @property
    def decoder(self) -> Mapping[str, Any]: ...
    @property
    def vocab_size(self) -> int: ...
    def encode(self, text: str, *, add_special_tokens: bool) -> Encoding: ...
    def decode(self, ids: Sequence[int], *, skip_special_tokens: bool) -> str: ...
    def id_to_token(self, token_id: int) -> str | None: ...
    def token_to_id(self, token: str) -> int | None: ...
    def longest_token(self, letters: Sequence[str]) -> int | None:
        """Characters of a text that one token stands for at most, where ``letters`` spell the bytes; None where there
        is no such limit."""
        ...

    def respelled(self, spelling: Mapping[int, str]) -> RespelledTokenizer:
        """This tokenizer, sharing its vocabulary, in which some added tokens are written otherwise."""
        ...
