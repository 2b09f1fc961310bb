"""Graphs rewritten for CUDA: attention in float16, over a KV cache in float16; all else as it is in the bundle.

CUDA's attention takes floats of 16 bits only. Between the layers they stay 32 bits wide: the states of some families
are larger than float16 can hold, and matrices are read in 8 or 4 bits either way.
"""

from collections.abc import Iterator, Mapping

from edgegen.graph.node import integer_attribute, trimmed
from edgegen.graph.protobuf import edited, field, fields, integer_field, retyped, tensor_value, values

_GRAPH, _FUNCTION, _NODE_OF_FUNCTION = 7, 25, 7
_NODE, _INPUT_VALUE, _OUTPUT_VALUE = 1, 11, 12
_INPUT, _OUTPUT, _NAME, _OP_TYPE, _ATTRIBUTE, _DOMAIN = 1, 2, 3, 4, 5, 7
_VALUE_NAME = 1
_FLOAT, _HALF = 1, 10

_QUERY, _KEY, _VALUE, _PAST_KEY, _PAST_VALUE, _COS, _SIN, _BIAS, _SINK = 0, 1, 2, 3, 4, 7, 8, 10, 11
"""Inputs of ``GroupQueryAttention``."""
_HALVED = (_QUERY, _KEY, _VALUE, _COS, _SIN, _SINK)
_MATMUL_BIAS = 5

_NOT_COMPUTED = {b"QMoE": "its experts are quantized", b"LinearAttention": "it has linear attention"}
"""Operators that CUDA does not compute in the bundle's formats, and what it says of the model."""


def obstacles(graph: bytes) -> list[str]:
    """Why ``graph`` cannot run on CUDA, in a few words each.

    Raises:
        ValueError: that is no graph.
    """
    reasons = dict[str, None]()
    bodies = (message for function in values(graph, _FUNCTION) for message in values(function, _NODE_OF_FUNCTION))
    for message in (*values(next(values(graph, _GRAPH)), _NODE), *bodies):
        kind = next(values(message, _OP_TYPE))
        if kind in _NOT_COMPUTED:
            reasons[_NOT_COMPUTED[kind]] = None
        if kind == b"GroupQueryAttention" and [*values(message, _INPUT), *[b""] * _SINK][_BIAS]:
            reasons["its attention has a bias (of ALiBi, or of its queries)"] = None
    return list(reasons)


def with_float16_attention(graph: bytes) -> bytes:
    """``graph``, whose KV cache is float32, with attention and the KV cache in float16.

    Raises:
        ValueError: that is no graph.
    """
    body = next(values(graph, _GRAPH))
    cached = {name for message in values(body, _NODE) for name in _cached(message)}
    halves = dict[bytes, bytes]()
    parts = list[bytes]()
    for number, payload, whole in fields(body):
        if number == _NODE:
            parts += [field(_NODE, node) for node in _nodes(payload, halves)]
        elif number in (_INPUT_VALUE, _OUTPUT_VALUE) and next(values(payload, _VALUE_NAME)) in cached:
            parts.append(field(number, retyped(payload, _HALF)))
        else:
            parts.append(whole)
    return edited(graph, _GRAPH, lambda _: b"".join(parts))


def _cached(node: bytes) -> list[bytes]:
    """The tensors of the KV cache that a node reads and writes."""
    if next(values(node, _OP_TYPE)) != b"GroupQueryAttention":
        return []
    inputs, outputs = [*values(node, _INPUT)], [*values(node, _OUTPUT)]
    return [inputs[_PAST_KEY], inputs[_PAST_VALUE], *outputs[1:3]]


def _nodes(node: bytes, halves: dict[bytes, bytes]) -> Iterator[bytes]:
    """Yield the nodes that replace ``node``; ``halves``: values there already in float16, by their float32 names."""
    kind, inputs, outputs = next(values(node, _OP_TYPE)), [*values(node, _INPUT)], [*values(node, _OUTPUT)]
    if kind == b"GroupQueryAttention":
        for place in _HALVED:
            if place < len(inputs) and (wide := inputs[place]):
                if wide not in halves:
                    halves[wide] = wide + b".half"
                    yield _cast(wide, halves[wide], _HALF)
                inputs[place] = halves[wide]
        yield _changed(node, {_INPUT: inputs, _OUTPUT: [outputs[0] + b".half", *outputs[1:]]})
        yield _cast(outputs[0] + b".half", outputs[0], _FLOAT)
    elif kind == b"MatMulNBits" and len(inputs) > _MATMUL_BIAS:
        # Some versions of the operator have no bias, and those that have one are slower with it.
        product = outputs[0] + b".product"
        yield _changed(node, {_INPUT: trimmed(inputs[:_MATMUL_BIAS]), _OUTPUT: [product]})
        yield _node(b"Add", [product, inputs[_MATMUL_BIAS]], outputs)
    else:
        yield node


def _changed(node: bytes, names: Mapping[int, list[bytes]]) -> bytes:
    """``node`` with other inputs and outputs."""
    parts = [field(number, name) for number, found in names.items() for name in found]
    return b"".join([*parts, *(whole for number, _, whole in fields(node) if number not in names)])


def _cast(source: bytes, target: bytes, dtype: int) -> bytes:
    return _node(b"Cast", [source], [target]) + field(_ATTRIBUTE, integer_attribute(b"to", dtype))


def _node(op_type: bytes, inputs: list[bytes], outputs: list[bytes]) -> bytes:
    names = [field(_INPUT, name) for name in inputs] + [field(_OUTPUT, name) for name in outputs]
    return b"".join([*names, field(_NAME, outputs[0] + b"/" + op_type), field(_OP_TYPE, op_type)])


def copying_graph(op_type: bytes, inputs: int, axis: int | None = None) -> bytes:
    """A graph of one operator over float16 tensors of four axes: ``x0``, … → ``y``."""

    def described(name: bytes) -> bytes:
        return tensor_value(name, _HALF, [name + str(n).encode() for n in range(4)])

    names = [f"x{n}".encode() for n in range(inputs)]
    node = _node(op_type, names, [b"y"])
    if axis is not None:
        node += field(_ATTRIBUTE, integer_attribute(b"axis", axis))
    graph = field(_NODE, node) + field(2, b"copy")
    graph += b"".join(field(_INPUT_VALUE, described(name)) for name in names) + field(_OUTPUT_VALUE, described(b"y"))
    return integer_field(1, 10) + field(_GRAPH, graph) + field(8, field(1, b"") + integer_field(2, 21))
