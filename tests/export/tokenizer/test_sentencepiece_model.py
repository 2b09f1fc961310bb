"""SentencePiece models: read as the library reads them, and refused if damaged or inconsistent."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgegen.errors import CheckpointError
from edgegen_export.tokenizer.sentencepiece_model import Algorithm, PieceType, read_sentencepiece
from tests.export.tokenizer.sentencepieces import (
    BPE,
    CONTROL,
    NORMAL,
    TINY,
    UNKNOWN,
    WORD,
    field,
    import_sentencepiece,
    model_bytes,
)


def test_reads_what_was_written() -> None:
    data = model_bytes(
        TINY,
        trainer={3: BPE, 35: 1, 40: 0, 41: 1, 42: 2, 43: -1},
        normalizer={1: b"nmt_nfkc", 2: b"\x01\x02", 3: 0, 4: 0},
    )
    model = read_sentencepiece(data, "tokenizer.model")
    assert [(p.text, p.score, p.type) for p in model.pieces] == TINY
    assert model.algorithm == Algorithm.BPE
    assert (model.unk_id, model.bos_id, model.eos_id, model.pad_id) == (0, 1, 2, None)
    assert model.byte_fallback
    assert (model.normalization, model.charsmap) == ("nmt_nfkc", b"\x01\x02")
    assert not model.add_dummy_prefix
    assert not model.remove_extra_whitespaces


def test_what_is_absent_has_the_formats_defaults() -> None:
    model = read_sentencepiece(model_bytes(TINY, trainer={}), "tokenizer.model")
    assert model.algorithm == Algorithm.UNIGRAM
    assert (model.unk_id, model.bos_id, model.eos_id, model.pad_id) == (0, 1, 2, None)
    assert not model.byte_fallback
    assert model.add_dummy_prefix
    assert model.remove_extra_whitespaces


@pytest.mark.parametrize("place", ["models/stories260K", "tokenizers/llama2"])
def test_agrees_with_the_library(test_data: Path, place: str) -> None:
    path = test_data / place / "tokenizer.model"
    model = read_sentencepiece(path.read_bytes(), "tokenizer.model")
    oracle: Any = import_sentencepiece().SentencePieceProcessor(model_file=str(path))
    assert len(model.pieces) == oracle.get_piece_size()
    for i, piece in enumerate(model.pieces):
        assert (piece.text, piece.score) == (oracle.id_to_piece(i), oracle.get_score(i))
        assert (piece.type == PieceType.CONTROL) == oracle.is_control(i)
        assert (piece.type == PieceType.BYTE) == oracle.is_byte(i)
    assert (model.unk_id, model.bos_id, model.eos_id) == (oracle.unk_id(), oracle.bos_id(), oracle.eos_id())


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"", "exactly one piece must stand for the unknown, not 0 of 0"),
        (
            b"\x00garbage",
            "tokenizer.model is not a SentencePiece model: it is damaged, truncated, or a file of another format",
        ),
        (model_bytes(TINY)[:-1], "tokenizer.model is not a SentencePiece model"),
        (model_bytes(TINY)[:20], "tokenizer.model is not a SentencePiece model: it is damaged"),
        (b"\x08" + b"\xff" * 10, "tokenizer.model is not a SentencePiece model: it is damaged"),
        (field(1, 5), "exactly one piece must stand for the unknown, not 0 of 0"),
        (field(1, field(1, b"\xff")), "tokenizer.model: piece 0 is not UTF-8"),
        (b"IQ== 0\nIg== 1\n", "is a tiktoken vocabulary, not a SentencePiece model: add the model's tokenizer.json"),
        (model_bytes([*TINY, ("a", 0.0, NORMAL)]), "piece 5 is 'a' again, as piece 4"),
        (model_bytes([*TINY, ("", 0.0, NORMAL)]), "piece 5 is empty"),
        (model_bytes([*TINY, ("b", float("nan"), NORMAL)]), "piece 5 has the score nan"),
        (model_bytes([*TINY, ("b", 0.0, 9)]), "piece 5 has the unknown type 9"),
        (model_bytes([*TINY, ("b", 0.0, UNKNOWN)]), "exactly one piece must stand for the unknown, not 2 of 6"),
        (model_bytes(TINY, trainer={3: WORD}), "its algorithm is WORD, neither BPE nor UNIGRAM"),
        (model_bytes(TINY, trainer={3: 77}), "its algorithm is 77"),
        (model_bytes(TINY, trainer={3: BPE, 41: 5}), "its bos_id is 5, but it has 5 pieces"),
        (model_bytes(TINY, trainer={3: BPE, 24: 1}), "treat_whitespace_as_suffix"),
        (model_bytes(TINY, normalizer={5: 0}), "escape_whitespaces is off"),
    ],
)
def test_a_damaged_or_inconsistent_model_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(CheckpointError) as caught:
        read_sentencepiece(data, "tokenizer.model")
    assert said in str(caught.value)
    assert str(caught.value).startswith("tokenizer.model")


def test_everything_wrong_is_said_at_once() -> None:
    many = [(f"x{i}", 0.0, NORMAL) for i in range(20)] * 2
    data = model_bytes([("<s>", 0.0, CONTROL), *many], trainer={3: WORD, 42: 99})
    with pytest.raises(CheckpointError) as caught:
        read_sentencepiece(data, "tokenizer.model")
    problems = str(caught.value).split("\n")
    assert len(problems) == 1 + 6 + 3  # five of the twenty pieces, how many more, the unknown, the algorithm, the id
    assert "… and 15 more like this" in str(caught.value)


@given(data=st.data())
def test_a_damaged_model_is_a_model_or_one_clear_error(data: st.DataObject) -> None:
    whole = bytearray(model_bytes(TINY, trainer={3: BPE, 41: 1}, normalizer={1: b"x", 3: 1}))
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    damaged = bytes(whole[: data.draw(st.integers(0, len(whole)))])
    refusal = "tokenizer.model"
    try:
        model = read_sentencepiece(damaged, "tokenizer.model")
        assert model.pieces[model.unk_id].type == PieceType.UNKNOWN
    except CheckpointError as error:
        refusal = str(error)
    assert refusal.startswith("tokenizer.model")
