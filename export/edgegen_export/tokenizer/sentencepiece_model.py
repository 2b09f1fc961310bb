"""SentencePieceModel: a SentencePiece ``tokenizer.model``, read and checked."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from edgegen.errors import CheckpointError, refuse_any
from edgegen_export.tokenizer.sentencepiece_proto import parse_model

_TIKTOKEN = re.compile(rb"[A-Za-z0-9+/]+={0,2} \d+\r?\n")
_SHOWN = 5


class PieceType(IntEnum):
    """The type of a piece; GGUF files use the same numbers."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class Algorithm(IntEnum):
    """How the tokenizer splits text into pieces."""

    UNIGRAM = 1
    BPE = 2
    WORD = 3
    CHAR = 4


@dataclass(frozen=True, slots=True)
class Piece:
    text: str
    score: float
    type: PieceType = PieceType.NORMAL


@dataclass(frozen=True, slots=True)
class SentencePieceModel:
    """The pieces by id, the algorithm that splits text into them, and the normalization before it.

    ``bos_id``, ``eos_id``, ``pad_id``: None where the model has no such piece. ``charsmap``: the compiled rules of
    the normalization, empty without any.
    """

    pieces: tuple[Piece, ...] = field(repr=False)
    algorithm: Algorithm
    unk_id: int
    bos_id: int | None = None
    eos_id: int | None = None
    pad_id: int | None = None
    byte_fallback: bool = False
    normalization: str = "identity"
    charsmap: bytes = field(default=b"", repr=False)
    add_dummy_prefix: bool = True
    remove_extra_whitespaces: bool = False

    @property
    def unk_piece(self) -> str:
        return self.pieces[self.unk_id].text


def read_sentencepiece(data: bytes, name: str) -> SentencePieceModel:
    """The model in a file's bytes.

    Raises:
        CheckpointError: the file is not such a model, contradicts itself, or asks for what a ``tokenizer.json``
            cannot express; every problem is listed.
    """
    if _TIKTOKEN.match(data):
        raise CheckpointError(
            f"{name} is a tiktoken vocabulary, not a SentencePiece model: add the model's tokenizer.json"
        )
    model = parse_model(data, name)
    trainer, normalizer = model.trainer_spec, model.normalizer_spec
    types = [piece.type for piece in model.pieces]
    problems = [f"piece {i} has the unknown type {kind}" for i, kind in enumerate(types) if kind not in _TYPES]
    pieces = tuple(
        Piece(_text(p.piece, f"{name}: piece {i}"), p.score, _TYPES.get(p.type, PieceType.NORMAL))
        for i, p in enumerate(model.pieces)
    )
    problems += check_pieces(pieces)
    unknown = [i for i, piece in enumerate(pieces) if piece.type == PieceType.UNKNOWN]
    if len(unknown) != 1:
        problems.append(f"exactly one piece must stand for the unknown, not {len(unknown)} of {len(pieces)}")
    algorithm: int = trainer.model_type
    if algorithm not in (Algorithm.UNIGRAM, Algorithm.BPE):
        known = Algorithm(algorithm).name if algorithm in list(Algorithm) else str(algorithm)
        problems.append(f"its algorithm is {known}, neither BPE nor UNIGRAM")
    if trainer.treat_whitespace_as_suffix:
        problems.append("it writes spaces after words (treat_whitespace_as_suffix), which is not supported")
    if not normalizer.escape_whitespaces:
        problems.append("it keeps spaces as they are (escape_whitespaces is off), which is not supported")
    ids: dict[str, int] = {key: getattr(trainer, key) for key in ("unk_id", "bos_id", "eos_id", "pad_id")}
    problems += [f"its {key} is {i}, but it has {len(pieces)} pieces" for key, i in ids.items() if i >= len(pieces)]
    refuse_any(problems, CheckpointError, f"{name}: ")
    bos_id, eos_id, pad_id = (i if (i := ids[key]) >= 0 else None for key in ("bos_id", "eos_id", "pad_id"))
    return SentencePieceModel(
        pieces=pieces,
        algorithm=Algorithm(algorithm),
        unk_id=unknown[0],
        bos_id=bos_id,
        eos_id=eos_id,
        pad_id=pad_id,
        byte_fallback=trainer.byte_fallback,
        normalization=_text(normalizer.name, f"{name}: the normalizer's name"),
        charsmap=normalizer.precompiled_charsmap,
        add_dummy_prefix=normalizer.add_dummy_prefix,
        remove_extra_whitespaces=normalizer.remove_extra_whitespaces,
    )


def check_pieces(pieces: tuple[Piece, ...]) -> list[str]:
    """The problems of a vocabulary: empty or repeated pieces, scores that are not finite."""
    problems = repeated(dict(enumerate(pieces)))
    problems += _some([f"piece {i} is empty" for i, piece in enumerate(pieces) if not piece.text])
    problems += _some(
        [f"piece {i} has the score {p.score}" for i, p in enumerate(pieces) if not math.isfinite(p.score)]
    )
    return problems


def repeated(pieces: Mapping[int, Piece]) -> list[str]:
    """The first few repeated pieces, by id."""
    first: dict[str, int] = {}
    again = [(i, piece.text) for i, piece in pieces.items() if first.setdefault(piece.text, i) != i]
    return _some([f"piece {i} is {text!r} again, as piece {first[text]}" for i, text in again])


def _text(data: bytes, name: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{name} is not UTF-8") from error


_TYPES = {kind.value: kind for kind in PieceType}


def _some(problems: list[str]) -> list[str]:
    """The first few problems of one kind."""
    rest = len(problems) - _SHOWN
    return problems[:_SHOWN] + ([f"… and {rest} more like this"] if rest > 0 else [])
