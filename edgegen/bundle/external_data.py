"""Tensors that lie in a file beside an ONNX graph: how many bytes of them a run reads, and moved to pages.

A graph is a protocol buffer message, and is read as one, for ``onnx`` is not there at run time. Only fields that are
needed are looked into (onnx.proto: ``ModelProto.graph``; ``GraphProto.node`` and ``initializer``; ``NodeProto.input``,
``output`` and ``op_type``; ``TensorProto.name`` and ``external_data``).
"""

from collections.abc import Callable, Iterator
from typing import BinaryIO

_PAGE = 4096
_PIECE = 1 << 22
_GRAPH = 7
_NODE, _INITIALIZER = 1, 5
_INPUT, _OUTPUT, _OP_TYPE = 1, 2, 4
_NAME, _EXTERNAL_DATA = 8, 13
_KEY, _VALUE = 1, 2

_LOOKUPS = frozenset({"Gather", "GatherBlockQuantized"})
"""Of what these take they read a few rows."""

Edit = Callable[[bytes], bytes]


def bytes_read(graph: bytes) -> int:
    """Bytes of the tensors that a run of ``graph`` reads whole: of all that its nodes take, but tables of rows.

    Tensors in the same place are one.

    Raises:
        ValueError: that is no such message.
    """
    places, casts, read = dict[str, tuple[int, int]](), dict[str, str](), set[str]()
    for body in _values(graph, _GRAPH):
        for tensor in _values(body, _INITIALIZER):
            entries = dict(_entry(payload) for payload in _values(tensor, _EXTERNAL_DATA))
            if entries:
                name = next(_values(tensor, _NAME)).decode()
                places[name] = int(entries.get("offset", 0)), int(entries["length"])
        for node in _values(body, _NODE):
            kind = next(_values(node, _OP_TYPE)).decode()
            inputs = [payload.decode() for payload in _values(node, _INPUT)]
            if kind == "Cast":  # of a tensor, it is folded when the graph is loaded
                casts[next(_values(node, _OUTPUT)).decode()] = inputs[0]
            elif kind not in _LOOKUPS:
                read.update(inputs)
    own = {casts.get(name, name) for name in read}
    return sum(length for _, length in {place for name, place in places.items() if name in own})


def move_to_pages(graph: bytes, source: BinaryIO, target: BinaryIO, location: str) -> bytes:
    """Copy every tensor of ``graph``, and every packed form of one, from ``source`` to a page of its own in ``target``.

    ONNX Runtime saves packed matrices without regard to alignment, and reads those that begin between two multiples of
    64 bytes wrongly, without a word (1.31.1).

    Returns the graph whose tensors lie there, in the file ``location`` beside it.

    Raises:
        ValueError: that is no such message.
    """

    def moved(offset: str, length: str) -> str:
        begin = -(-target.tell() // _PAGE) * _PAGE
        target.write(bytes(begin - target.tell()))
        source.seek(int(offset))
        left = int(length)
        while left:
            piece = source.read(min(left, _PIECE))
            if not piece:
                raise ValueError("a tensor lies beyond the end of its file")
            target.write(piece)
            left -= len(piece)
        return str(begin)

    def tensor(message: bytes) -> bytes:
        entries = dict(_entry(payload) for payload in _values(message, _EXTERNAL_DATA))
        if not entries:
            return message
        changed = {"location": location, "offset": moved(entries["offset"], entries["length"])}
        for key, value in entries.items():
            if key.startswith("prepacked_"):  # kernel|offset;length;checksum|…
                kernel, *parts = value.split("|")
                places = [part.split(";") for part in parts]
                changed[key] = "|".join([kernel, *(";".join([moved(*at[:2]), *at[1:]]) for at in places)])
        return _edited(message, _EXTERNAL_DATA, lambda payload: _with_value(payload, changed))

    return _edited(graph, _GRAPH, lambda body: _edited(body, _INITIALIZER, tensor))


def _entry(message: bytes) -> tuple[str, str]:
    texts = {number: payload.decode() for number, payload, _ in _fields(message)}
    return texts[_KEY], texts[_VALUE]


def _with_value(message: bytes, values: dict[str, str]) -> bytes:
    key, value = _entry(message)
    texts = {_KEY: key, _VALUE: values.get(key, value)}
    return b"".join(_field(number, text.encode()) for number, text in texts.items())


def _edited(message: bytes, number: int, edit: Edit) -> bytes:
    """``message``, its fields ``number``, which are bytes, edited."""
    return b"".join(
        _field(found, edit(payload)) if found == number else whole for found, payload, whole in _fields(message)
    )


def _values(message: bytes, number: int) -> Iterator[bytes]:
    """What the fields ``number`` hold, which are bytes."""
    return (payload for found, payload, _ in _fields(message) if found == number)


def _fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Number, payload (of a field of bytes; else empty) and the whole of each field."""
    at = 0
    while at < len(message):
        tag, begin = _varint(message, at)
        match tag & 7:
            case 0:
                _, end = _varint(message, begin)
            case 1:
                end = begin + 8
            case 2:
                length, begin = _varint(message, begin)
                end = begin + length
            case 5:
                end = begin + 4
            case kind:
                raise ValueError(f"a field of kind {kind}")
        if end > len(message):
            raise ValueError("a message that ends too early")
        yield tag >> 3, message[begin:end] if tag & 7 == 2 else b"", message[at:end]
        at = end


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """The number that begins at ``at``, and where it ends."""
    value = shift = 0
    while True:
        if at >= len(message):
            raise ValueError("a message that ends too early")
        value |= (message[at] & 0x7F) << shift
        shift, at = shift + 7, at + 1
        if message[at - 1] < 0x80:
            return value, at


def _field(number: int, payload: bytes) -> bytes:
    return _as_varint(number << 3 | 2) + _as_varint(len(payload)) + payload


def _as_varint(value: int) -> bytes:
    data = bytearray()
    while value > 0x7F:
        data.append(value & 0x7F | 0x80)
        value >>= 7
    data.append(value)
    return bytes(data)
