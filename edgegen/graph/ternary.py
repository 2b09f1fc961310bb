"""Ternary matrices of a rewritten graph: rounding of inputs, product and scales as one of edgegen's operators."""

import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from edgegen.graph.node import GraphNode, integer_attribute

Constants = Mapping[bytes, tuple[bytes, tuple[int, ...]]]
"""Initializers: their bytes, none where they are in another file, and their shape."""

_STEPS, _LEAST, _ONE = (struct.pack("<f", value) for value in (127.0, 1e-5, 1.0))
_LAST_AXIS, _ZERO = struct.pack("<q", -1), bytes([128])
_VALUES = b"".join(struct.pack("<4b", *((byte >> 2 * i & 3) - 2 for i in range(4))) for byte in range(256))
"""What each byte of codes stands for."""


class _Ternary(NamedTuple):
    """The nodes of one matrix, the last of which gives the result; what is rounded; codes, scales and bias."""

    nodes: Sequence[GraphNode]
    x: bytes
    codes: bytes
    scales: bytes
    bias: bytes


def with_ternary(
    nodes: Sequence[GraphNode | None], constants: Constants, results: Iterable[bytes]
) -> list[GraphNode | None]:
    """``nodes`` with ``edgegen.BlockMatMul`` in place of what an export writes for a ternary matrix, and None for the
    rest of that. ``results``: the graph's outputs."""
    replaced = dict[GraphNode, GraphNode | None]()
    for found in _found(nodes, constants, results):
        last, (rows, size) = found.nodes[-1], constants[found.codes][1]
        sizes = {b"K": 4 * size, b"N": rows, b"bits": 2, b"block_size": 4}
        attributes = {name: integer_attribute(name, value) for name, value in sizes.items()}
        replaced |= dict.fromkeys(found.nodes)
        inputs = [found.x, found.codes, found.scales, b"", found.bias]
        replaced[last] = last.replaced(b"BlockMatMul", inputs, last.outputs, attributes)
    return [replaced.get(node, node) if node else None for node in nodes]


def _found(nodes: Sequence[GraphNode | None], constants: Constants, results: Iterable[bytes]) -> Iterator[_Ternary]:
    products = [node for node in nodes if node and node.op_type == b"MatMulInteger"]
    made = {name: node for node in nodes if node for name in node.outputs} if products else {}
    readers = dict[bytes, list[GraphNode]]()
    for node in filter(None, nodes if products else ()):
        for name in node.inputs:
            readers.setdefault(name, []).append(node)
    uses = Counter({name: len(found) for name, found in readers.items()})
    uses.update(results)

    def before(node: GraphNode | None, op_type: bytes, at: int = 0) -> GraphNode | None:
        """The node of this type that gives an input."""
        found = made.get(node.inputs[at]) if node and len(node.inputs) > at else None
        return found if found and found.op_type == op_type else None

    def after(node: GraphNode | None, op_type: bytes) -> GraphNode | None:
        """The node of this type that alone reads what ``node`` gives, as its first input."""
        alone = readers.get(node.outputs[0], []) if node and uses[node.outputs[0]] == 1 else []
        first = node and alone and alone[0].op_type == op_type and alone[0].inputs[0] == node.outputs[0]
        return alone[0] if first else None

    def stored(node: GraphNode, at: int) -> bytes:
        """The bytes of an input that is a constant."""
        return constants.get([*node.inputs, b"", b""][at], (b"", ()))[0]

    for product in products:
        rounded, transposed = before(product, b"QuantizeLinear"), before(product, b"Transpose", 1)
        scaled = before(rounded, b"Mul")
        factor = before(scaled, b"Div", 1)
        size = before(factor, b"Max", 1)
        largest = before(size, b"ReduceMax")
        sizes = before(largest, b"Abs")
        shaped = before(transposed, b"Reshape")
        values = before(shaped, b"Gather")
        wide = before(values, b"Cast", 1)
        summed = after(product, b"Cast")
        divided = after(summed, b"Div")
        whole = after(divided, b"Mul")
        if not (rounded and scaled and factor and size and largest and sizes):
            continue
        if not (transposed and shaped and values and wide and summed and divided and whole):
            continue
        codes, scales = wide.inputs[0], whole.inputs[1]
        shape = constants.get(codes, (b"", ()))[1]
        biased = after(whole, b"Add")
        biased = biased if biased and biased.inputs[1] in constants else None
        before_product = [sizes, largest, size, factor, scaled, rounded, wide, values, shaped, transposed]
        own = [*before_product, product, summed, divided, whole, *([biased] if biased else [])]
        as_exported = (
            scaled.inputs == [*sizes.inputs, factor.outputs[0]]
            and divided.inputs[1] == factor.outputs[0]
            and stored(largest, 1) == _LAST_AXIS
            and (stored(factor, 0), stored(size, 1)) == (_STEPS, _LEAST)
            and (stored(rounded, 1), stored(rounded, 2), stored(product, 2)) == (_ONE, _ZERO, _ZERO)
            and len(product.inputs) == 3
            and stored(values, 0) == _VALUES
            and len(shape) == 2
            and stored(shaped, 1) == struct.pack("<qq", shape[0], 4 * shape[1])
            and scales in constants
            and not transposed.attributes
            and not values.attributes
            and uses[factor.outputs[0]] == 2
            and all(uses[node.outputs[0]] == 1 for node in own[:-1] if node is not factor)
        )
        if as_exported:
            yield _Ternary(own, sizes.inputs[0], codes, scales, biased.inputs[1] if biased else b"")
