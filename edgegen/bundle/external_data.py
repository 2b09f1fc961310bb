"""Tensors that lie in a file beside an ONNX graph: how many bytes of them a run reads, and moved to pages.

A graph is a protocol buffer message, and is read as one, for ``onnx`` is not there at run time. Only fields that are
needed are looked into (onnx.proto: ``ModelProto.graph``; ``GraphProto.node`` and ``initializer``; ``NodeProto.input``,
``output`` and ``op_type``; ``TensorProto.name`` and ``external_data``).
"""

from typing import BinaryIO

from edgegen.bundle.protobuf import edited, field, fields, values

_PAGE = 4096
_PIECE = 1 << 22
_GRAPH = 7
_NODE, _INITIALIZER = 1, 5
_INPUT, _OUTPUT, _OP_TYPE = 1, 2, 4
_NAME, _EXTERNAL_DATA = 8, 13
_KEY, _VALUE = 1, 2

_LOOKUPS = frozenset({"Gather", "GatherBlockQuantized"})
"""Of what these take they read a few rows."""


def bytes_read(graph: bytes) -> int:
    """Bytes of the tensors that a run of ``graph`` reads whole: of all that its nodes take, but tables of rows.

    Tensors in the same place are one.

    Raises:
        ValueError: that is no such message.
    """
    places, casts, read = dict[str, tuple[int, int]](), dict[str, str](), set[str]()
    for body in values(graph, _GRAPH):
        for tensor in values(body, _INITIALIZER):
            entries = dict(_entry(payload) for payload in values(tensor, _EXTERNAL_DATA))
            if entries:
                name = next(values(tensor, _NAME)).decode()
                places[name] = int(entries.get("offset", 0)), int(entries["length"])
        for node in values(body, _NODE):
            kind = next(values(node, _OP_TYPE)).decode()
            inputs = [payload.decode() for payload in values(node, _INPUT)]
            if kind == "Cast":  # of a tensor, it is folded when the graph is loaded
                casts[next(values(node, _OUTPUT)).decode()] = inputs[0]
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
        entries = dict(_entry(payload) for payload in values(message, _EXTERNAL_DATA))
        if not entries:
            return message
        changed = {"location": location, "offset": moved(entries["offset"], entries["length"])}
        for key, value in entries.items():
            if key.startswith("prepacked_"):  # kernel|offset;length;checksum|…
                kernel, *parts = value.split("|")
                places = [part.split(";") for part in parts]
                changed[key] = "|".join([kernel, *(";".join([moved(*at[:2]), *at[1:]]) for at in places)])
        return edited(message, _EXTERNAL_DATA, lambda payload: _with_value(payload, changed))

    return edited(graph, _GRAPH, lambda body: edited(body, _INITIALIZER, tensor))


def _entry(message: bytes) -> tuple[str, str]:
    texts = {number: payload.decode() for number, payload, _ in fields(message)}
    return texts[_KEY], texts[_VALUE]


def _with_value(message: bytes, values: dict[str, str]) -> bytes:
    key, value = _entry(message)
    texts = {_KEY: key, _VALUE: values.get(key, value)}
    return b"".join(field(number, text.encode()) for number, text in texts.items())
