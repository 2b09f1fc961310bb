"""Protocol buffer messages, read and edited field by field: ONNX graphs, without ``onnx``, which the run time lacks.

https://protobuf.dev/programming-guides/encoding/
"""

import struct
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # help and lists do without
    import numpy as np
    from numpy.typing import NDArray

Edit = Callable[[bytes], bytes]


def values(message: bytes, number: int) -> Iterator[bytes]:
    """Yield the payloads of the fields ``number``, which are bytes."""
    return (payload for found, payload, _ in fields(message) if found == number)


def integer_value(message: bytes, number: int) -> int | None:
    """Return the value of the last field ``number``, an integer; None if it is absent."""
    found = [whole for at, _, whole in fields(message) if at == number]
    return integer(found[-1]) if found else None


def integer(whole: bytes) -> int:
    """Return the integer of a whole field; a negative one is 2⁶⁴ more."""
    return _varint(whole, 1 if whole[0] < 0x80 else _varint(whole, 0)[1])[0]


def packed_integers(payload: bytes) -> Iterator[int]:
    """The integers of a packed field."""
    at = 0
    while at < len(payload):
        value, at = _varint(payload, at)
        yield value


def edited(message: bytes, number: int, edit: Edit) -> bytes:
    """``message``, its fields ``number``, which are bytes, edited."""
    return b"".join(
        field(found, edit(payload)) if found == number else whole for found, payload, whole in fields(message)
    )


def field(number: int, payload: bytes) -> bytes:
    """A field of bytes, text or a message."""
    size = len(payload)
    if number < 16 and size < 0x80:  # as most are
        return _BYTES[number << 3 | 2] + _BYTES[size] + payload
    return _as_varint(number << 3 | 2) + _as_varint(size) + payload


def integer_field(number: int, value: int) -> bytes:
    """A field of an integer that is not negative."""
    return _as_varint(number << 3) + _as_varint(value)


def float_field(number: int, value: float) -> bytes:
    """A field of a float of 32 bits."""
    return _as_varint(number << 3 | 5) + struct.pack("<f", value)


def fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Number, payload (of a field of bytes; else empty) and the whole of each field."""
    at, size = 0, len(message)
    while at < size:
        tag, begin = (message[at], at + 1) if message[at] < 0x80 else _varint(message, at)
        kind = tag & 7
        if kind == 2:  # most are; their length is a byte as a rule
            short = begin < size and message[begin] < 0x80
            length, begin = (message[begin], begin + 1) if short else _varint(message, begin)
            end = begin + length
        elif kind == 0:
            end = begin + 1 if begin < size and message[begin] < 0x80 else _varint(message, begin)[1]
        elif kind in (1, 5):
            end = begin + (8 if kind == 1 else 4)
        else:
            raise ValueError(f"a field of kind {kind}")
        if end > size:
            raise ValueError("a message that ends too early")
        yield tag >> 3, message[begin:end] if kind == 2 else b"", message[at:end]
        at = end


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """The number that begins at ``at``, and where it ends."""
    if at < len(message) and message[at] < 0x80:
        return message[at], at + 1
    value = shift = 0
    while True:
        if at >= len(message):
            raise ValueError("a message that ends too early")
        if shift > 63:
            raise ValueError("an integer of more than 64 bits")
        value |= (message[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if message[at - 1] < 0x80:
            return value, at


_BYTES = tuple(bytes((value,)) for value in range(0x80))


def _as_varint(value: int) -> bytes:
    if value < 0x80:
        return _BYTES[value]
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)


_VALUE_NAME, _VALUE_TYPE, _TENSOR_TYPE, _ELEMENT_TYPE, _SHAPE, _DIMENSION, _SIZE, _SIZE_NAME = 1, 2, 1, 1, 2, 1, 1, 2
"""Fields of a ``ValueInfoProto``, and of the messages in it."""


def tensor_value(name: bytes, element_type: int, sizes: Sequence[bytes | int]) -> bytes:
    """A ``ValueInfoProto`` of a tensor; sizes may be names."""
    told = (integer_field(_SIZE, one) if isinstance(one, int) else field(_SIZE_NAME, one) for one in sizes)
    dimensions = b"".join(field(_DIMENSION, one) for one in told)
    tensor = integer_field(_ELEMENT_TYPE, element_type) + field(_SHAPE, dimensions)
    return field(_VALUE_NAME, name) + field(_VALUE_TYPE, field(_TENSOR_TYPE, tensor))


def retyped(value: bytes, element_type: int, shape: Edit = lambda message: message) -> bytes:
    """A ``ValueInfoProto`` of a tensor with elements of another type, its ``shape`` edited."""

    def tensor(message: bytes) -> bytes:
        others = [
            field(_SHAPE, shape(payload)) if number == _SHAPE else whole
            for number, payload, whole in fields(message)
            if number != _ELEMENT_TYPE
        ]
        return b"".join([integer_field(_ELEMENT_TYPE, element_type), *others])

    return edited(value, _VALUE_TYPE, lambda kind: edited(kind, _TENSOR_TYPE, tensor))


_DIMS, _TYPE, _NAME, _RAW = 1, 2, 8, 9
_FLOAT = 1
"""Fields of a ``TensorProto``, and the type of its elements."""


def float_tensor(name: str, array: "NDArray[np.float32]") -> bytes:
    """A ``TensorProto``, for a graph's initializers."""
    dims = b"".join(integer_field(_DIMS, size) for size in array.shape)
    raw = array.astype("<f4").tobytes()
    return dims + integer_field(_TYPE, _FLOAT) + field(_NAME, name.encode()) + field(_RAW, raw)
