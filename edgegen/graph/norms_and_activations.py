"""Norms and activations of a graph rewritten to edgegen's own operators, whose bits no instruction set changes."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import NamedTuple

from edgegen.graph.node import GraphNode, integer_attribute, text_of
from edgegen.graph.protobuf import fields

_ATTRIBUTE_FLOAT = 2
_MOST_DIMENSIONS = 8

_GELU, _GELU_TANH, SILU, _TANH, _RELU, NEGATIVE_SOFTPLUS, LOGISTIC = range(7)
"""The operator's kinds; ``kernels/floats/floats.h`` has their formulas."""

_NORMS = {
    b"LayerNormalization": ("x weight bias", 1),
    b"SimplifiedLayerNormalization": ("x weight", 0),
    b"SkipLayerNormalization": ("x skip weight bias skip_bias", 1),
    b"SkipSimplifiedLayerNormalization": ("x skip weight skip_bias", 0),
}
"""Names of the inputs, and 1 where the mean is subtracted."""

_ONE, _LAST_AXIS = b"\x15\x00\x00\x80\x3f", (1 << 64) - 1
"""As protocol buffers have an attribute of 1.0, and -1."""


class _Gate(NamedTuple):
    """``Mul(activation(gate), up)`` of the halves of one value, and which nodes that is."""

    split: GraphNode
    activation: GraphNode
    product: GraphNode
    axis: int


def with_float_kernels(
    nodes: Sequence[GraphNode], weights: Set[bytes], results: Iterable[bytes]
) -> list[GraphNode | None]:
    """``nodes`` with ``edgegen.Norm`` and ``edgegen.Activation`` in place of stock ones, and None for what is gone.

    ``Split``, activation and ``Mul`` of a gated MLP become one node. What is not understood stays as it is.
    ``weights``: initializers in float32; ``results``: the graph's outputs.
    """
    uses = Counter(name for node in nodes for name in node.inputs if name)
    uses.update(results)
    replaced = dict[GraphNode, GraphNode | None]()
    for node in nodes:
        if (kind := _kind(node)) is not None and kind != _RELU:  # stock Relu is exact
            replaced[node] = _activation(node, kind, node.inputs)
        elif norm := _norm(node, weights, uses):
            replaced[node] = norm
    for gate in _gates(nodes, uses):
        whole = _activation(gate.product, _kind(gate.activation) or 0, gate.split.inputs[:1], gate.axis)
        replaced |= {gate.split: None, gate.activation: None, gate.product: whole}
    return [replaced.get(node, node) for node in nodes]


def _activation(node: GraphNode, kind: int, inputs: Sequence[bytes], axis: int = 0) -> GraphNode:
    """Our activation in the place of ``node``."""
    attributes = {b"kind": integer_attribute(b"kind", kind), b"gate_axis": integer_attribute(b"gate_axis", axis)}
    return node.replaced(b"Activation", inputs, node.outputs, attributes)


def _kind(node: GraphNode) -> int | None:
    """The kind of an activation; None if the node is another operator, or has attributes that ours has not."""
    match node.op_type:
        case b"Gelu":
            text = text_of(node.attributes.get(b"approximate", b"")) or b"none"
            return {b"none": _GELU, b"tanh": _GELU_TANH}.get(text)
        case b"QuickGelu":
            floats = (whole for at, _, whole in fields(node.attributes.get(b"alpha", b"")) if at == _ATTRIBUTE_FLOAT)
            return SILU if next(floats, b"") == _ONE else None
        case b"Tanh":
            return _TANH
        case b"Sigmoid":
            return LOGISTIC
        case b"Relu":
            return _RELU
        case _:
            return None


def _norm(node: GraphNode, weights: Set[bytes], uses: Mapping[bytes, int]) -> GraphNode | None:
    """Our norm in place of ``node``; None if that is not a norm, or computes its weights."""
    if node.op_type not in _NORMS:
        return None
    names, centered = _NORMS[node.op_type]
    inputs = dict(zip(names.split(), node.inputs, strict=False))
    x, weight, bias, skip, skip_bias = (inputs.get(name, b"") for name in ("x", "weight", "bias", "skip", "skip_bias"))
    result, mean, deviation, total = [*node.outputs, b"", b"", b""][:4]
    epsilon = node.attributes.get(b"epsilon")
    last = node.integer(b"axis", _LAST_AXIS) == _LAST_AXIS
    if epsilon is None or not last or uses[mean] or uses[deviation] or {weight, bias, skip_bias} - {b""} - weights:
        return None
    outputs = [result, total if uses[total] else b""]
    attributes = {b"epsilon": epsilon, b"centered": integer_attribute(b"centered", centered)}
    return node.replaced(b"Norm", [x, weight, bias, skip, skip_bias], outputs, attributes)


def _gates(nodes: Sequence[GraphNode], uses: Mapping[bytes, int]) -> Iterator[_Gate]:
    made = {name: node for node in nodes for name in node.outputs}
    for product in nodes:
        if product.op_type != b"Mul":
            continue
        activation, split = (made.get(name) for name in product.inputs)
        if activation is None or split is None or _kind(activation) is None or split.op_type != b"Split":
            continue
        own = [*activation.inputs, *product.inputs[1:]] == list(split.outputs)
        axis = split.integer(b"axis", 0)
        alone = all(uses[name] == 1 for name in [*split.outputs, *activation.outputs])
        if own and alone and split.integer(b"num_outputs", 0) == 2 and axis and axis < _MOST_DIMENSIONS:
            yield _Gate(split, activation, product, axis)
