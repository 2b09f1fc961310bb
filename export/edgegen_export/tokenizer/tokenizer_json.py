"""TokenizerJson: an editable ``tokenizer.json``."""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Self

from edgegen.errors import CheckpointError
from edgegen.tokenizer.tokenizer_check import check_tokenizer, read_tokenizer_json
from edgegen_export.tokenizer.added_token import AddedToken
from edgegen_export.tokenizer.components import Component

_PARTS = ("normalizer", "pre_tokenizer", "post_processor", "decoder")


class TokenizerJson:
    """The vocabulary model, the added tokens, and the other components of the file."""

    def __init__(self, content: dict[str, Any], added: dict[int, AddedToken]) -> None:
        self._content = content
        self._added = added
        model: dict[str, Any] = content["model"]
        vocab: dict[str, int] | list[list[Any]] = model["vocab"]
        pieces = vocab if isinstance(vocab, dict) else {str(piece[0]): i for i, piece in enumerate(vocab)}
        self._size = len(vocab)
        self._id_of = {**pieces, **{token.content: i for i, token in added.items()}}
        self._text_of = {i: text for text, i in self._id_of.items()}

    @classmethod
    def of(
        cls,
        model: Component,
        *,
        normalizer: Component | None = None,
        pre_tokenizer: Component | None = None,
        post_processor: Component | None = None,
        decoder: Component | None = None,
    ) -> Self:
        """A tokenizer of these components, without added tokens."""
        steps = dict(zip(_PARTS, (normalizer, pre_tokenizer, post_processor, decoder), strict=True))
        return cls({"version": "1.0", "truncation": None, "padding": None, **steps, "model": model}, {})

    @classmethod
    def parse(cls, data: bytes, name: str) -> Self:
        """Parse a file; ``CheckpointError`` if it lacks the structure of a tokenizer, or asks for more than it may."""
        try:
            content = read_tokenizer_json(data)
            check_tokenizer(content)
            if any(not isinstance(step["type"], str) for part in _PARTS if (step := content.get(part)) is not None):
                raise ValueError("a step of it has no name")
            added = {int(token["id"]): AddedToken.read(token) for token in content.get("added_tokens") or ()}
            return cls({**dict.fromkeys(_PARTS), **content}, added)
        except KeyError as error:
            raise CheckpointError(f"{name} is not a readable tokenizer: it has no {error}") from error
        except (ValueError, TypeError, AttributeError, IndexError, RecursionError) as error:
            raise CheckpointError(f"{name} is not a readable tokenizer: {error}") from error

    @property
    def size(self) -> int:
        """One more than the highest id."""
        return max(self._text_of, default=-1) + 1

    @property
    def added(self) -> dict[int, AddedToken]:
        """The added tokens by id."""
        return dict(self._added)

    @property
    def pre_tokenizer(self) -> Component | None:
        return self._content["pre_tokenizer"]

    @pre_tokenizer.setter
    def pre_tokenizer(self, value: Component) -> None:
        self._content["pre_tokenizer"] = value

    @property
    def post_processor(self) -> Component | None:
        return self._content["post_processor"]

    @post_processor.setter
    def post_processor(self, value: Component) -> None:
        self._content["post_processor"] = value

    def id_of(self, text: str) -> int | None:
        """The id of the token with this text, or None."""
        return self._id_of.get(text)

    def text_of(self, token_id: int) -> str | None:
        """The token's text, or None if there is no such id."""
        return self._text_of.get(token_id)

    def add(self, token: AddedToken, token_id: int | None = None) -> None:
        """Add a token, or change the flags of one. A token of the vocabulary keeps its id; an empty one is ignored.

        Raises ``ValueError`` when another token has the wanted id.
        """
        if not token.content:
            return
        known = self.id_of(token.content)
        if known is None:
            known = self.size if token_id is None else token_id
            if (other := self.text_of(known)) is not None:
                raise ValueError(f"the added token {token.content!r} cannot have the id {known}, that of {other!r}")
            self._id_of[token.content] = known
            self._text_of[known] = token.content
        before = self._added.get(known)
        self._added[known] = replace(token, special=True) if before and before.special else token

    def leave_out_dropout(self) -> float:
        """Have all merges made, as always at inference; return the share that was left out at random."""
        model: dict[str, Any] = self._content["model"]
        dropout = model.get("dropout")
        if dropout:
            self._content["model"] = {**model, "dropout": None}
        return dropout or 0.0

    def to_bytes(self) -> bytes:
        """The file's contents; ``CheckpointError`` if the library could not number the added tokens so.

        The library numbers added tokens outside the vocabulary consecutively. Where that would change ids, the tokens
        become part of the vocabulary.
        """
        model: dict[str, Any] = self._content["model"]
        vocab: dict[str, int] | list[list[Any]] = model["vocab"]
        beyond = [i for i in sorted(self._added) if i >= self._size or not _has(vocab, i, self._added[i].content)]
        if beyond != list(range(self._size, self._size + len(beyond))):
            if not isinstance(vocab, dict):
                raise CheckpointError("the ids of the added tokens leave a gap after the vocabulary")
            model = {**model, "vocab": {**vocab, **{self._added[i].content: i for i in beyond}}}
        added = [self._added[i].to_json(i) for i in sorted(self._added)]
        content = {**self._content, "added_tokens": added, "model": model}
        # The library's own order, with the long vocabulary last.
        order = ("version", "truncation", "padding", "added_tokens", *_PARTS)
        ordered = {**{key: content.get(key) for key in order}, **content}
        ordered["model"] = ordered.pop("model")
        return encoded(ordered)


def encoded(content: Mapping[str, Any]) -> bytes:
    """The contents of a ``tokenizer.json``, without white space."""
    # JSON can contain lone surrogates; the check reports them.
    return json.dumps(content, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "surrogatepass")


def _has(vocab: dict[str, int] | list[list[Any]], token_id: int, text: str) -> bool:
    return vocab.get(text) == token_id if isinstance(vocab, dict) else vocab[token_id][0] == text
