"""Tensors that lie in a file beside an ONNX graph: how many bytes of them a run reads.

A graph is a protocol buffer message, and is read as one, for ``onnx`` is not there at run time. Only fields that are
needed are looked into (onnx.proto: ``ModelProto.graph``; ``GraphProto.node`` and ``initializer``; ``NodeProto.input``,
``output`` and ``op_type``; ``TensorProto.name`` and ``external_data``).
"""

from edgegen.bundle.protobuf import fields, values

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


def _entry(message: bytes) -> tuple[str, str]:
    texts = {number: payload.decode() for number, payload, _ in fields(message)}
    return texts[_KEY], texts[_VALUE]
