"""Tensors that lie in a file beside an ONNX graph: how many bytes of them a run reads, whole or row by row.

A graph is a protocol buffer message, and is read as one, for ``onnx`` is not there at run time. Only fields that are
needed are looked into (onnx.proto: ``ModelProto.graph``; ``GraphProto.node`` and ``initializer``; ``NodeProto.input``,
``output``, ``op_type`` and ``attribute``; ``AttributeProto.g``; ``TensorProto.name`` and ``external_data``).
"""

from collections.abc import Iterator

from edgegen.graph.protobuf import fields, values

_GRAPH = 7
_NODE, _INITIALIZER = 1, 5
_INPUT, _OUTPUT, _OP_TYPE, _ATTRIBUTE = 1, 2, 4, 5
_INNER_GRAPH = 6
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
    return sum(length for _, length in _places(graph)[0])


def bytes_of_tables(graph: bytes) -> int:
    """Bytes of the tensors of which a run of ``graph`` reads a few rows only, and never the whole.

    Raises:
        ValueError: that is no such message.
    """
    return sum(length for _, length in _places(graph)[1])


def bytes_beside(graph: bytes, other: bytes) -> int:
    """Bytes of the tensors that a run of ``graph`` reads, and one of ``other``, with the same file, does not.

    Raises:
        ValueError: that is no such message.
    """
    own, others = (set[_Place]().union(*_places(one)) for one in (graph, other))
    return sum(length for _, length in own - others)


_Place = tuple[int, int]
"""Offset and length."""


def _places(graph: bytes) -> tuple[set[_Place], set[_Place]]:
    """Where tensors lie that are read whole, and where those that are looked up only."""
    places, casts, taken = dict[str, _Place](), dict[str, str](), {True: set[str](), False: set[str]()}
    for body in values(graph, _GRAPH):
        for tensor in values(body, _INITIALIZER):
            entries = dict(_entry(payload) for payload in values(tensor, _EXTERNAL_DATA))
            if entries:
                name = next(values(tensor, _NAME)).decode()
                places[name] = int(entries.get("offset", 0)), int(entries["length"])
        for node in values(body, _NODE):
            kind = next(values(node, _OP_TYPE)).decode()
            inputs = [payload.decode() for one in (node, *_inner(node)) for payload in values(one, _INPUT)]
            if kind == "Cast":  # of a tensor, it is folded when the graph is loaded
                casts[next(values(node, _OUTPUT)).decode()] = inputs[0]
            else:
                taken[kind in _LOOKUPS].update(inputs)
                taken[False].update(inputs[1:2] if kind in _LOOKUPS else ())  # which rows are looked up
    looked_up, whole = (
        {places[own] for name in names if (own := casts.get(name, name)) in places} for names in taken.values()
    )
    return whole, looked_up - whole


def _inner(node: bytes) -> Iterator[bytes]:
    """The nodes of the graphs within a node."""
    graphs = (graph for attribute in values(node, _ATTRIBUTE) for graph in values(attribute, _INNER_GRAPH))
    return (inner for graph in graphs for inner in values(graph, _NODE))


def _entry(message: bytes) -> tuple[str, str]:
    texts = {number: payload.decode() for number, payload, _ in fields(message)}
    return texts[_KEY], texts[_VALUE]
