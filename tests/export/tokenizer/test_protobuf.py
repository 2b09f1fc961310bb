"""The reader of protobuf messages: against the protobuf library's own, and on bytes that are no messages."""

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgegen.errors import CheckpointError
from edgegen_export.tokenizer.protobuf import Message
from tests.export.tokenizer.sentencepieces import field, varint


def test_reads_every_kind() -> None:
    data = field(1, 300) + field(2, -1) + field(3, 1.5) + field(4, "größe".encode()) + field(5, field(1, 7))
    data += varint(6 << 3 | 1) + bytes(8)
    message = Message(data, "it")
    assert message.integer(1, 0) == 300
    assert message.integer(2, 0) == -1
    assert message.float32(3, 0.0) == 1.5
    assert message.text(4) == "größe"
    assert message.message(5, "inner").integer(1, 0) == 7
    assert message.boolean(1, False)


def test_absent_fields_have_their_defaults() -> None:
    message = Message(b"", "it")
    assert message.integer(1, 5) == 5
    assert message.boolean(1, True)
    assert message.float32(1, 2.0) == 2.0
    assert message.text(1, "x") == "x"
    assert message.contents(1) == []
    assert message.message(1, "inner").integer(1, 3) == 3


def test_the_last_value_counts_and_messages_are_merged() -> None:
    data = field(1, 1) + field(1, 2) + field(2, field(1, 5)) + field(2, field(2, 6))
    message = Message(data, "it")
    assert message.integer(1, 0) == 2
    inner = message.message(2, "inner")
    assert (inner.integer(1, 0), inner.integer(2, 0)) == (5, 6)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"\x08", "ends inside an integer"),
        (b"\x08\x80", "ends inside an integer"),
        (b"\x08" + b"\xff" * 10, "more than 64 bits"),
        (b"\x08" + b"\xff" * 9 + b"\x7f", "more than 64 bits"),
        (field(1, b"abc")[:-1], "field 1 has 3 bytes, and 2 are left"),
        (varint(1 << 3 | 2) + varint(1 << 60), "field 1 has 1152921504606846976 bytes, and 0 are left"),
        (varint(3 << 3 | 5) + b"abc", "field 3 has 4 bytes, and 3 are left"),
        (b"\x00\x01", "no field can begin like byte 0"),
        (varint(1 << 3 | 3), "no field can begin like byte 0"),
        (varint(1 << 40), "no field can begin"),
        (field(1, 1) + field(1, b"x"), "field 1 is bytes here and an integer there"),
    ],
)
def test_what_is_no_message_is_refused(data: bytes, said: str) -> None:
    with pytest.raises(CheckpointError, match=said):
        Message(data, "it")


def test_a_field_of_another_type_is_refused() -> None:
    message = Message(field(1, 1) + field(2, b"\xff"), "it")
    with pytest.raises(CheckpointError, match="it: field 1 is an integer, not bytes"):
        message.text(1)
    with pytest.raises(CheckpointError, match="it: field 2 is bytes, not an integer"):
        message.integer(2, 0)
    with pytest.raises(CheckpointError, match="it: field 2 is not UTF-8"):
        message.text(2)


@given(data=st.binary(max_size=200))
def test_any_bytes_are_a_message_or_one_clear_error(data: bytes) -> None:
    refusal = "it"
    try:
        assert Message(data, "it").integer(1 << 29, 7) == 7
    except CheckpointError as error:
        refusal = str(error)
    assert refusal.startswith("it")


values = st.integers(-(1 << 63), (1 << 63) - 1) | st.binary(max_size=20) | st.floats(width=32, allow_nan=False)


@given(fields=st.lists(st.tuples(st.integers(1, (1 << 29) - 1), values), max_size=8, unique_by=lambda pair: pair[0]))
def test_what_was_written_is_read(fields: list[tuple[int, int | bytes | float]]) -> None:
    message = Message(b"".join(field(number, value) for number, value in fields), "it")
    for number, value in fields:
        read: Any = message.contents(number)[0] if isinstance(value, bytes) else None
        if isinstance(value, int):
            read = message.integer(number, 0)
        elif isinstance(value, float):
            read = message.float32(number, 0.0)
        assert read == value


pieces = st.tuples(st.integers(1, 4), values | st.text(max_size=5).map(str.encode)).map(lambda pair: field(*pair))


@given(data=st.lists(pieces, max_size=6).map(b"".join), lost=st.integers(0, 3))
def test_agrees_with_the_protobuf_library(data: bytes, lost: int) -> None:
    """On bytes that both take; the library passes over fields of another type."""
    pb2: Any = pytest.importorskip("sentencepiece.sentencepiece_model_pb2", reason="protobuf is the oracle here")
    data = data[: len(data) - lost]
    try:
        message = Message(data, "it")
        ours = message.text(1), message.float32(2, 0.0)
    except CheckpointError:
        return
    piece = pb2.ModelProto.SentencePiece()
    piece.ParseFromString(data)
    assert ours[0] == piece.piece
    assert struct.pack("<f", ours[1]) == struct.pack("<f", piece.score)
