"""OpenedTokenizer: a ``tokenizer.json`` that is parsed, checked and given to the tokenizers library once an export."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self, cast

from edgegen.errors import CheckpointError
from edgegen.tokenizer import LibraryBackend
from edgegen.tokenizer.tokenizer_check import check_tokenizer, read_tokenizer_json
from edgegen_export.tokenizer.tokenizer_json import encoded

_MOST_LEFT_OUT = 1000
"""Ids without a token, of which the library makes and prints a list whenever it writes a tokenizer."""

_HEADER = "#version"
"""Beginning that the library takes for a comment, in a merge that is one string."""


@dataclass(frozen=True, slots=True)
class OpenedTokenizer:
    """``data``: the file's contents; ``content``: the same, parsed; ``backend``: as the library reads it."""

    data: bytes
    content: Mapping[str, Any]
    backend: LibraryBackend

    @classmethod
    def of(cls, data: bytes) -> Self:
        """Open the contents of a file as they are.

        Raises ``ValueError``, which says why they are not a tokenizer.
        """
        content = read_tokenizer_json(data)
        return cls(data, content, LibraryBackend.of_checked(data, check_tokenizer(content).growth))

    @classmethod
    def quick_to_read(cls, data: bytes) -> Self:
        """Open a file without its white space, each merge one string: the library reads that in two thirds of the time.

        As it is where the library would not make the very same tokenizer of it.

        Raises:
            CheckpointError: it is not a tokenizer.
        """
        try:
            content = read_tokenizer_json(data)
            growth = check_tokenizer(content).growth
            quick = _quick(content)
            if quick is not None and (opened := cls._same(quick, data, growth)) is not None:
                return opened
            return cls(data, content, LibraryBackend.of_checked(data, growth))
        except (ValueError, RecursionError) as error:
            raise CheckpointError(f"tokenizer.json is not a readable tokenizer: {error}") from error

    @classmethod
    def _same(cls, quick: Mapping[str, Any], data: bytes, growth: float) -> Self | None:
        """The tokenizer of ``quick`` where it is that of ``data``; None if not, or if the library does not read it."""
        written = encoded(quick)
        try:
            backend = LibraryBackend.of_checked(written, growth)
            # Scores, which a list of pieces has, may be read otherwise in fewer digits.
            same = isinstance(quick["model"]["vocab"], dict) or backend.same_as(LibraryBackend.of_checked(data, growth))
        except ValueError:
            return None
        return cls(written, quick, backend) if same else None


def _quick(content: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """The contents with merges of one string each; None where they stay as they are."""
    model: Mapping[str, Any] = content["model"]
    if _ids_left_out(model.get("vocab")) > _MOST_LEFT_OUT:
        return None
    merges: Any = model.get("merges")
    if not merges or not all(_is_texts(merge) for merge in merges):
        return content
    joined = [" ".join(merge) for merge in merges]
    if any(merge.count(" ") != 1 or merge.startswith(_HEADER) for merge in joined):
        return None
    return {**content, "model": {**model, "merges": joined}}


def _is_texts(merge: object) -> bool:
    return isinstance(merge, list) and all(isinstance(part, str) for part in cast(list[object], merge))


def _ids_left_out(vocab: object) -> int:
    """How many ids below the highest no token has."""
    ids = cast(dict[str, int], vocab).values() if isinstance(vocab, dict) else ()
    return max(ids, default=-1) + 1 - len(ids)
