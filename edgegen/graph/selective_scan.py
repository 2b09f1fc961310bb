"""Selective scans of a graph rewritten to edgegen's own operator, which ONNX Runtime computes node by node."""

from collections.abc import Sequence, Set

from edgegen.graph.node import GraphNode
from edgegen.graph.protobuf import values

_ATTRIBUTE_GRAPH = 6
_NODE, _INPUT, _OUTPUT, _VALUE_NAME = 1, 11, 12, 1
_AXES = {b"scan_input_axes": [1] * 4, b"scan_output_axes": [1]}
_ATTRIBUTES = {b"body", b"num_scan_inputs", *_AXES}


def with_selective_scan(node: GraphNode, weights: Set[bytes]) -> GraphNode:
    """``node`` as ``edgegen.SelectiveScan``, or as it is where it is no ``Scan`` over the tokens that computes
    ``h = exp(step · rate) · h + taken · written`` and ``y = read · h``.

    ``weights``: initializers in float32.
    """
    if node.op_type != b"Scan" or {*node.attributes} != _ATTRIBUTES or node.integer(b"num_scan_inputs") != 4:
        return node
    if any(node.integers(name) != axes for name, axes in _AXES.items()) or len(node.inputs) != 5:
        return node
    rate = _rate(next(values(node.attributes[b"body"], _ATTRIBUTE_GRAPH), b""))
    if rate not in weights:
        return node
    return node.replaced(b"SelectiveScan", [*node.inputs, rate], node.outputs, {})


def _rate(body: bytes) -> bytes:
    """The name of the rates in a scan's ``body``; empty where that computes something else."""
    nodes = [GraphNode.parsed(message) for message in values(body, _NODE)]
    inputs, outputs = ([next(values(value, _VALUE_NAME)) for value in values(body, at)] for at in (_INPUT, _OUTPUT))
    made = {node.outputs[0]: node for node in nodes if len(node.outputs) == 1 and not node.domain}
    if len(inputs) != 5 or len(outputs) != 2 or len(nodes) != len(made) or len(made) != 6:
        return b""

    def taken(name: bytes, op_type: bytes, count: int = 2) -> Sequence[bytes]:
        """Return the inputs of the node that makes ``name``; empty names where it is another kind of node."""
        node = made.get(name)
        fits = node is not None and node.op_type == op_type and len(node.inputs) == count and not node.attributes
        return node.inputs if node is not None and fits else [b""] * count

    before, step, written, column, row = inputs
    decayed, given = taken(outputs[0], b"Add")
    first, kept = taken(decayed, b"Mul")
    (exponent,) = taken(kept, b"Exp", 1)
    own_step, rate = taken(exponent, b"Mul")
    found = [first, own_step, *taken(given, b"Mul"), *taken(outputs[1], b"MatMul")]
    return rate if found == [before, step, column, written, row, outputs[0]] else b""
