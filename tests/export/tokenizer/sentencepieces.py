"""SentencePiece models for tests: written field by field, or trained by the SentencePiece library, the oracle."""

import io
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
UNIGRAM, BPE, WORD = 1, 2, 3
TINY = [
    ("<unk>", 0.0, UNKNOWN),
    ("<s>", 0.0, CONTROL),
    ("</s>", 0.0, CONTROL),
    ("▁", -1.0, NORMAL),
    ("a", -2.0, NORMAL),
]


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    head: list[int] = []
    while value > 0x7F:
        head.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*head, value])


def field(number: int, value: int | bytes | float) -> bytes:
    """One field, written by the rules of the format: integers, floats of 32 bits, bytes."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    return varint(number << 3 | 2) + varint(len(value)) + value


def model_bytes(
    pieces: Sequence[tuple[str, float, int]],
    *,
    trainer: dict[int, int] | None = None,
    normalizer: dict[int, int | bytes] | None = None,
) -> bytes:
    """A model of these pieces (text, score, type); ``trainer``: fields of its trainer_spec, 3 is the algorithm."""
    written = [field(1, field(1, text.encode()) + field(2, score) + field(3, kind)) for text, score, kind in pieces]
    specs = [trainer if trainer is not None else {3: BPE}, normalizer or {}]
    parts = [b"".join(field(number, value) for number, value in spec.items()) for spec in specs]
    return b"".join([*written, field(2, parts[0]), field(3, parts[1])])


def import_sentencepiece() -> Any:
    return pytest.importorskip("sentencepiece", reason="sentencepiece is the oracle here, and it is not installed")


def train(data: Path, **settings: Any) -> bytes:
    """A model of the story corpus, trained by the library."""
    library = import_sentencepiece()
    lines = (data / "corpora" / "tinystories_cased_197k.txt").read_text("utf-8").split("\n")[:600]
    written = io.BytesIO()
    settings = {"vocab_size": 500, "num_threads": 1, "minloglevel": 2, **settings}
    library.SentencePieceTrainer.train(sentence_iterator=iter(lines), model_writer=written, **settings)
    return written.getvalue()
