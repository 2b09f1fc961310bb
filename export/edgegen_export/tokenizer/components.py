"""The components of a ``tokenizer.json`` (normalizers, pre-tokenizers, models, decoders) as JSON objects."""

from collections.abc import Mapping, Sequence
from typing import Any

Component = dict[str, Any]

SPACE_MARK = "▁"
"""The character that SentencePiece writes for a space (U+2581)."""


def chain(kind: str, parts: Sequence[Component]) -> Component | None:
    """A sequence of normalizers, pre-tokenizers or decoders; ``kind`` is the key of its list. None if empty."""
    if len(parts) == 1:
        return parts[0]
    return {"type": "Sequence", kind: list(parts)} if parts else None


def replace(old: str, new: str) -> Component:
    return {"type": "Replace", "pattern": {"String": old}, "content": new}


def replace_regex(old: str, new: str) -> Component:
    return {"type": "Replace", "pattern": {"Regex": old}, "content": new}


def isolated(regex: str) -> Component:
    """A pre-tokenizer that splits into the matches of ``regex`` and the text between them."""
    return {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False}


def byte_level(*, add_prefix_space: bool = False, use_regex: bool = True) -> Component:
    """Byte-level pre-tokenizer (by default with GPT-2's word splitting) and decoder."""
    return {
        "type": "ByteLevel",
        "add_prefix_space": add_prefix_space,
        "trim_offsets": True,
        "use_regex": use_regex,
    }


def metaspace(prepend: str, *, split: bool) -> Component:
    """Metaspace: spaces become marks; one is prepended ``always``, to the ``first`` section only, or ``never``."""
    return {"type": "Metaspace", "replacement": SPACE_MARK, "prepend_scheme": prepend, "split": split}


def byte_fallback_decoder(*, drop_first_space: bool) -> Component:
    """A decoder from marks to spaces and ``<0xNN>`` to bytes, which can drop the prepended first space."""
    parts: list[Component] = [replace(SPACE_MARK, " "), {"type": "ByteFallback"}, {"type": "Fuse"}]
    if drop_first_space:
        parts.append({"type": "Strip", "content": " ", "start": 1, "stop": 0})
    return {"type": "Sequence", "decoders": parts}


def bpe(
    vocab: Mapping[str, int],
    merges: Sequence[tuple[str, str]],
    *,
    unk_token: str | None = None,
    fuse_unk: bool = False,
    byte_fallback: bool = False,
    ignore_merges: bool = False,
    end_of_word_suffix: str | None = None,
) -> Component:
    return {
        "type": "BPE",
        "dropout": None,
        "unk_token": unk_token,
        "continuing_subword_prefix": None,
        "end_of_word_suffix": end_of_word_suffix,
        "fuse_unk": fuse_unk,
        "byte_fallback": byte_fallback,
        "ignore_merges": ignore_merges,
        "vocab": dict(vocab),
        "merges": [list(pair) for pair in merges],
    }


def unigram(pieces: Sequence[tuple[str, float]], *, unk_id: int, byte_fallback: bool) -> Component:
    return {
        "type": "Unigram",
        "unk_id": unk_id,
        "vocab": [list(piece) for piece in pieces],
        "byte_fallback": byte_fallback,
    }


def template(first: tuple[str, int] | None, last: tuple[str, int] | None) -> Component:
    """A post-processor that adds a token (text, id) before and after every text."""

    def around(sequence: str, type_id: int) -> list[Component]:
        parts = [{"SpecialToken": {"id": token[0], "type_id": type_id}} if token else None for token in (first, last)]
        text = {"Sequence": {"id": sequence, "type_id": type_id}}
        return [part for part in (parts[0], text, parts[1]) if part]

    return {
        "type": "TemplateProcessing",
        "single": around("A", 0),
        "pair": around("A", 0) + around("B", 1),
        "special_tokens": {
            text: {"id": text, "ids": [token_id], "tokens": [text]} for text, token_id in filter(None, (first, last))
        },
    }
