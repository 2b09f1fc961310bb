"""A model's vocabulary as llguidance wants it: the bytes of every token."""

from typing import TYPE_CHECKING, Any, cast

from edgegen.errors import ConstraintError
from edgegen.tokenizer import Tokenizer

if TYPE_CHECKING:
    from llguidance import LLTokenizer

_SPECIAL = b"\xff"
"""Marks a token that is no text; no UTF-8 begins so."""
_LOOK_AHEAD = 1024
"""Characters of forced text that are tokenized in advance."""


class ConstraintVocabulary:
    """Interface that llguidance asks of a tokenizer; its names are llguidance's.

    Special tokens are no text, and neither are the ids with which a model pads its vocabulary beyond the
    tokenizer's. The end-of-sequence id given here is one more than there are: real ones are the business of
    ``ConstraintState``, as each request may name its own.
    """

    is_tokenizer_wrapper = True
    eos_token_id = None
    bos_token_id = None
    special_token_ids: tuple[int, ...] = ()

    def __init__(self, tokenizer: Tokenizer, size: int) -> None:
        """
        Args:
            size: of the model's vocabulary, the length of its logits.

        Raises:
            ConstraintError: the tokens of this vocabulary do not spell bytes.
        """
        if not tokenizer.spells_bytes:
            raise ConstraintError(
                "output cannot be constrained with this model: its tokenizer is neither byte-level nor has it "
                "a byte fallback, so that a token's text depends on its neighbours"
            )
        self.size = size
        self._tokenizer = tokenizer
        self.tokens = [self._bytes_of(token_id) for token_id in range(size)]
        self._ids: dict[bytes, int] | None = None

    def build(self) -> "LLTokenizer":
        """llguidance's own form of it; takes up to a second."""
        from llguidance import LLTokenizer

        return LLTokenizer(cast(Any, self))

    def __call__(self, text: bytes | str) -> list[int]:
        """The usual ids of ``text`` where it continues another, of its first part where it is long.

        llguidance asks for the ids of all that is forced, in every step, of which a step uses a few.
        """
        wanted = text if isinstance(text, str) else text.decode()
        if len(wanted) > _LOOK_AHEAD:
            wanted = wanted[:_LOOK_AHEAD]
        # After a line break, a vocabulary that begins a text with a space of its own adds none.
        for before in ("", "\n"):
            skipped = self._tokenizer.encode(before, add_special_tokens=False) if before else []
            ids = self._tokenizer.encode(before + wanted, add_special_tokens=False)
            rest = ids[len(skipped) :]
            spelled = b"".join(self.tokens[token_id] for token_id in rest if token_id < self.size)
            if ids[: len(skipped)] == skipped and spelled == wanted.encode():
                return rest
        return self._longest_first(wanted.encode())

    def _bytes_of(self, token_id: int) -> bytes:
        text = self._tokenizer.token_bytes(token_id)
        if text:
            return text
        name = self._tokenizer.visible_token(token_id, skip_special_tokens=False)
        return _SPECIAL + (name.encode() if name else b"[%d]" % token_id)

    def _longest_first(self, text: bytes) -> list[int]:
        """Any ids that spell ``text``; those a normalizer would have written otherwise."""
        if self._ids is None:
            self._ids = {token: token_id for token_id, token in enumerate(self.tokens)}
        longest = max(map(len, self._ids))
        ids: list[int] = []
        while text:
            for length in range(min(longest, len(text)), 0, -1):
                if (token_id := self._ids.get(text[:length])) is not None:
                    ids.append(token_id)
                    break
            else:
                return ids
            text = text[length:]
        return ids
