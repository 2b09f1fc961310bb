"""Norms and activations of a graph rewritten to edgegen's own operators, whose bits no instruction set changes."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Self

from edgegen.bundle.protobuf import field, fields, integer_field, integer_value, values

_NODE, _INITIALIZER, _GRAPH_OUTPUT = 1, 5, 12
_INPUT, _OUTPUT, _NAME, _OP_TYPE, _ATTRIBUTE, _DOMAIN = 1, 2, 3, 4, 5, 7
_TENSOR_TYPE, _TENSOR_NAME, _FLOAT = 2, 8, 1
_VALUE_NAME = 1
_ATTRIBUTE_NAME, _ATTRIBUTE_FLOAT, _ATTRIBUTE_INTEGER, _ATTRIBUTE_STRING, _ATTRIBUTE_TYPE = 1, 2, 3, 4, 20
_INTEGER_TYPE = 2
_MOST_DIMENSIONS = 8

_GELU, _GELU_TANH, _SILU, _TANH, _RELU = range(5)
"""The operator's kinds; ``kernels/floats.h`` has their formulas."""

_NORMS = {
    b"LayerNormalization": ("x weight bias", 1),
    b"SimplifiedLayerNormalization": ("x weight", 0),
    b"SkipLayerNormalization": ("x skip weight bias skip_bias", 1),
    b"SkipSimplifiedLayerNormalization": ("x skip weight skip_bias", 0),
}
"""What the inputs are, and whether the mean is taken off."""

_ONE, _LAST_AXIS = b"\x15\x00\x00\x80\x3f", (1 << 64) - 1
"""As protocol buffers have an attribute of 1.0, and -1."""


@dataclass(frozen=True, slots=True)
class _Node:
    """A node; ``attributes`` are messages by name."""

    message: bytes
    op_type: bytes
    inputs: Sequence[bytes]
    outputs: Sequence[bytes]
    attributes: Mapping[bytes, bytes]

    @classmethod
    def parsed(cls, message: bytes) -> Self:
        attributes = {next(values(one, _ATTRIBUTE_NAME)): one for one in values(message, _ATTRIBUTE)}
        inputs, outputs = [*values(message, _INPUT)], [*values(message, _OUTPUT)]
        return cls(message, next(values(message, _OP_TYPE)), inputs, outputs, attributes)

    def integer(self, name: bytes, default: int) -> int | None:
        message = self.attributes.get(name)
        return default if message is None else integer_value(message, _ATTRIBUTE_INTEGER)

    def replaced(
        self, op_type: bytes, inputs: Sequence[bytes], outputs: Sequence[bytes], attributes: Sequence[bytes]
    ) -> bytes:
        """One of our operators in the place, and with the name, of this node."""
        parts = [field(_INPUT, name) for name in _trimmed(inputs)]
        parts += [field(_OUTPUT, name) for name in _trimmed(outputs)]
        parts += [field(_NAME, name) for name in values(self.message, _NAME)]
        parts += [field(_OP_TYPE, op_type), field(_DOMAIN, b"edgegen")]
        return b"".join([*parts, *(field(_ATTRIBUTE, one) for one in attributes)])

    def activation(self, kind: int, inputs: Sequence[bytes], axis: int = 0) -> bytes:
        """Our activation in its place."""
        attributes = [_integer(b"kind", kind), _integer(b"gate_axis", axis)]
        return self.replaced(b"Activation", inputs, self.outputs, attributes)


@dataclass(frozen=True, slots=True)
class _Gate:
    """``Mul(activation(gate), up)`` of the halves of one value, and which nodes that is."""

    split: _Node
    activation: _Node
    product: _Node
    axis: int


def with_float_kernels(graph: bytes) -> bytes:
    """``graph``, a ``GraphProto``, with ``edgegen.Norm`` and ``edgegen.Activation`` in place of stock nodes.

    ``Split``, activation and ``Mul`` of a gated MLP become one node. What is not understood stays as it is.
    """
    nodes = [_Node.parsed(payload) for payload in values(graph, _NODE)]
    uses = Counter(name for node in nodes for name in node.inputs if name)
    uses.update(next(values(output, _VALUE_NAME)) for output in values(graph, _GRAPH_OUTPUT))
    weights = {
        next(values(tensor, _TENSOR_NAME))
        for tensor in values(graph, _INITIALIZER)
        if integer_value(tensor, _TENSOR_TYPE) == _FLOAT
    }
    replaced: dict[bytes, bytes] = {}  # by message: nodes differ in the names of their outputs
    for node in nodes:
        if (kind := _kind(node)) is not None and kind != _RELU:  # stock Relu is exact
            replaced[node.message] = node.activation(kind, node.inputs)
        elif norm := _norm(node, weights, uses):
            replaced[node.message] = norm
    for gate in _gates(nodes, uses):
        whole = gate.product.activation(_kind(gate.activation) or 0, gate.split.inputs[:1], gate.axis)
        replaced |= {gate.split.message: b"", gate.activation.message: b"", gate.product.message: whole}
    parts: list[bytes] = []
    for number, payload, whole in fields(graph):
        new = replaced.get(payload, payload) if number == _NODE else payload
        parts.append(whole if new is payload else field(_NODE, new) if new else b"")
    return b"".join(parts)


def _kind(node: _Node) -> int | None:
    """The kind of an activation; None if the node is another operator, or has attributes that ours has not."""
    match node.op_type:
        case b"Gelu":
            text = next(values(node.attributes.get(b"approximate", b""), _ATTRIBUTE_STRING), b"none")
            return {b"none": _GELU, b"tanh": _GELU_TANH}.get(text)
        case b"QuickGelu":
            floats = (whole for at, _, whole in fields(node.attributes.get(b"alpha", b"")) if at == _ATTRIBUTE_FLOAT)
            return _SILU if next(floats, b"") == _ONE else None
        case b"Tanh":
            return _TANH
        case b"Relu":
            return _RELU
        case _:
            return None


def _norm(node: _Node, weights: Set[bytes], uses: Mapping[bytes, int]) -> bytes | None:
    """Our norm in place of ``node``; None if that is none, or computes its weights."""
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
    attributes = [epsilon, _integer(b"centered", centered)]
    return node.replaced(b"Norm", [x, weight, bias, skip, skip_bias], outputs, attributes)


def _gates(nodes: Sequence[_Node], uses: Mapping[bytes, int]) -> Iterator[_Gate]:
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


def _integer(name: bytes, value: int) -> bytes:
    """An attribute."""
    integer = integer_field(_ATTRIBUTE_INTEGER, value) + integer_field(_ATTRIBUTE_TYPE, _INTEGER_TYPE)
    return field(_ATTRIBUTE_NAME, name) + integer


def _trimmed(names: Sequence[bytes]) -> list[bytes]:
    """``names`` without those at the end that are left out."""
    kept = list(names)
    while not kept[-1]:
        kept.pop()
    return kept
