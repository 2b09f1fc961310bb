"""SentencePieceModel: what a ``tokenizer.model`` of the SentencePiece library says."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum

from edgegen.errors import CheckpointError, one_or_list
from edgegen_export.tokenizer.protobuf import Message

_TIKTOKEN = re.compile(rb"[A-Za-z0-9+/]+={0,2} \d+\r?\n")
_SHOWN = 5


class PieceType(IntEnum):
    """What a piece is; GGUF files use the same numbers."""

    NORMAL = 1
    UNKNOWN = 2
    CONTROL = 3
    USER_DEFINED = 4
    UNUSED = 5
    BYTE = 6


class Algorithm(IntEnum):
    """How a text is cut into pieces."""

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
    """The pieces by id, how a text is cut into them, and how it is normalized before.

    ``bos_id``, ``eos_id``, ``pad_id``: None where the model has no such piece. ``charsmap``: the compiled rules of
    the normalization, empty where there are none.
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
            cannot express; every fault is listed.
    """
    if _TIKTOKEN.match(data):
        raise CheckpointError(
            f"{name} is a tiktoken vocabulary, not a SentencePiece model: add the model's tokenizer.json"
        )
    model = Message(data, f"{name} is not a SentencePiece model")
    trainer, normalizer = model.message(2, "trainer_spec"), model.message(3, "normalizer_spec")
    faults: list[str] = []
    pieces = tuple(_piece(content, i, model_name=name, faults=faults) for i, content in enumerate(model.contents(1)))
    faults += check_pieces(pieces)
    unknown = [i for i, piece in enumerate(pieces) if piece.type == PieceType.UNKNOWN]
    if len(unknown) != 1:
        faults.append(f"exactly one piece must stand for the unknown, not {len(unknown)} of {len(pieces)}")
    algorithm = trainer.integer(3, Algorithm.UNIGRAM)
    if algorithm not in (Algorithm.UNIGRAM, Algorithm.BPE):
        known = Algorithm(algorithm).name if algorithm in list(Algorithm) else str(algorithm)
        faults.append(f"its algorithm is {known}, neither BPE nor UNIGRAM")
    if trainer.boolean(24, False):
        faults.append("it writes spaces behind words (treat_whitespace_as_suffix), which is not supported")
    if not normalizer.boolean(5, True):
        faults.append("it keeps spaces as they are (escape_whitespaces is off), which is not supported")
    defaults = {"unk_id": (40, 0), "bos_id": (41, 1), "eos_id": (42, 2), "pad_id": (43, -1)}
    ids = {key: trainer.integer(number, default) for key, (number, default) in defaults.items()}
    faults += [f"its {key} is {i}, but it has {len(pieces)} pieces" for key, i in ids.items() if i >= len(pieces)]
    if faults:
        raise CheckpointError(f"{name}: {one_or_list(faults)}")
    bos_id, eos_id, pad_id = (i if (i := ids[key]) >= 0 else None for key in ("bos_id", "eos_id", "pad_id"))
    return SentencePieceModel(
        pieces=pieces,
        algorithm=Algorithm(algorithm),
        unk_id=unknown[0],
        bos_id=bos_id,
        eos_id=eos_id,
        pad_id=pad_id,
        byte_fallback=trainer.boolean(35, False),
        normalization=normalizer.text(1),
        charsmap=normalizer.content(2),
        add_dummy_prefix=normalizer.boolean(3, True),
        remove_extra_whitespaces=normalizer.boolean(4, True),
    )


def check_pieces(pieces: tuple[Piece, ...]) -> list[str]:
    """The faults of a vocabulary: pieces that are empty or twice there, scores that are no numbers."""
    faults = repeated(dict(enumerate(pieces)))
    faults += _some([f"piece {i} is empty" for i, piece in enumerate(pieces) if not piece.text])
    faults += _some([f"piece {i} has the score {p.score}" for i, p in enumerate(pieces) if not math.isfinite(p.score)])
    return faults


def repeated(pieces: Mapping[int, Piece]) -> list[str]:
    """Which pieces, by id, are twice there; the first few."""
    first: dict[str, int] = {}
    again = [(i, piece.text) for i, piece in pieces.items() if first.setdefault(piece.text, i) != i]
    return _some([f"piece {i} is {text!r} again, as piece {first[text]}" for i, text in again])


def _piece(content: bytes, i: int, *, model_name: str, faults: list[str]) -> Piece:
    message = Message(content, f"{model_name} is not a SentencePiece model: piece {i}")
    kind = message.integer(3, PieceType.NORMAL)
    if kind not in _TYPES:
        faults.append(f"piece {i} has the unknown type {kind}")
        kind = PieceType.NORMAL
    return Piece(message.text(1), message.float32(2, 0.0), PieceType(kind))


_TYPES = frozenset(PieceType)


def _some(faults: list[str]) -> list[str]:
    """The first few of faults of one kind."""
    rest = len(faults) - _SHOWN
    return faults[:_SHOWN] + ([f"… and {rest} more like this"] if rest > 0 else [])
