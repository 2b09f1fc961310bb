"""Message: the fields of one serialized protobuf message, read strictly.

Only what the format itself defines: field numbers with values. Unknown fields are skipped; where a single value is
written several times the last one counts, and messages are merged, as the format says.
"""

import struct
from collections.abc import Iterator
from typing import Final

from edgegen.errors import CheckpointError

_VARINT: Final = 0
_FIXED64: Final = 1
_BYTES: Final = 2
_FIXED32: Final = 5
_KINDS = {_VARINT: "an integer", _FIXED64: "a 64-bit value", _BYTES: "bytes", _FIXED32: "a 32-bit value"}
_LARGEST_FIELD = (1 << 29) - 1


class Message:
    """A message; ``name`` says in errors where it was found.

    Raises ``CheckpointError`` when the bytes are not a message, and from the readers of single fields when a field
    has another type.
    """

    def __init__(self, data: bytes, name: str) -> None:
        self._name = name
        self._values: dict[int, list[int | bytes]] = {}
        self._kinds: dict[int, int] = {}
        for number, kind, value in _fields(data, name):
            if self._kinds.setdefault(number, kind) != kind:
                raise CheckpointError(
                    f"{name}: field {number} is {_KINDS[kind]} here and {_KINDS[self._kinds[number]]} there"
                )
            self._values.setdefault(number, []).append(value)

    def integer(self, number: int, default: int) -> int:
        """A signed integer or a value of an enumeration."""
        value = self._last(number, _VARINT)
        if not isinstance(value, int):
            return default
        return value - (1 << 64) if value >> 63 else value

    def boolean(self, number: int, default: bool) -> bool:
        return bool(self.integer(number, default))

    def float32(self, number: int, default: float) -> float:
        value = self._last(number, _FIXED32)
        return default if not isinstance(value, bytes) else struct.unpack("<f", value)[0]

    def content(self, number: int, default: bytes = b"") -> bytes:
        value = self._last(number, _BYTES)
        return default if not isinstance(value, bytes) else value

    def text(self, number: int, default: str = "") -> str:
        try:
            return self.content(number, default.encode()).decode()
        except UnicodeDecodeError as error:
            raise CheckpointError(f"{self._name}: field {number} is not UTF-8") from error

    def message(self, number: int, name: str) -> "Message":
        """The message in a field; empty where there is none."""
        return Message(b"".join(self.contents(number)), f"{self._name}: {name}")

    def contents(self, number: int) -> list[bytes]:
        """Every value of a repeated field of bytes or messages."""
        self._last(number, _BYTES)
        return [value for value in self._values.get(number, ()) if isinstance(value, bytes)]

    def _last(self, number: int, kind: int) -> int | bytes | None:
        found = self._kinds.get(number)
        if found is None:
            return None
        if found != kind:
            raise CheckpointError(f"{self._name}: field {number} is {_KINDS[found]}, not {_KINDS[kind]}")
        return self._values[number][-1]


def _fields(data: bytes, name: str) -> Iterator[tuple[int, int, int | bytes]]:
    """Field number, kind and value, in the order of the bytes."""
    at, end = 0, len(data)
    while at < end:
        key, at = _varint(data, at, name)
        number, kind = key >> 3, key & 7
        if kind not in _KINDS or not 0 < number <= _LARGEST_FIELD:
            raise CheckpointError(f"{name}: no field can begin like byte {at - 1}")
        if kind == _VARINT:
            value, at = _varint(data, at, name)
            yield number, kind, value
            continue
        length = 8 if kind == _FIXED64 else 4
        if kind == _BYTES:
            length, at = _varint(data, at, name)
        if length > end - at:
            raise CheckpointError(f"{name}: field {number} has {length} bytes, and {end - at} are left")
        yield number, kind, data[at : at + length]
        at += length


def _varint(data: bytes, at: int, name: str) -> tuple[int, int]:
    """An integer of seven bits a byte, the lowest first, and the place behind it."""
    value = shift = 0
    for byte in data[at : at + 10]:
        value |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            if value >> 64:
                break
            return value, at + shift // 7
    kind = "ends inside an integer" if at + 10 > len(data) and shift < 70 else "has an integer of more than 64 bits"
    raise CheckpointError(f"{name} {kind} (byte {at})")
