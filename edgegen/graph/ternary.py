"""Ternary matrices of a rewritten graph: rounding of inputs, product and scales as one of edgegen's operators."""

import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from edgegen.graph.neighbours import Constants, Neighbours
from edgegen.graph.node import GraphNode, integer_attribute

_STEPS, _LEAST, _ONE = (struct.pack("<f", value) for value in (127.0, 1e-5, 1.0))
_LAST_AXIS, _ZERO = struct.pack("<q", -1), bytes([128])
_VALUES = b"".join(struct.pack("<4b", *((byte >> 2 * i & 3) - 2 for i in range(4))) for byte in range(256))
"""Values of each byte of codes."""


class _Ternary(NamedTuple):
    """The nodes of one matrix, the last of which produces the result; what is rounded; codes, scales and bias."""

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
    around = Neighbours(nodes if products else (), constants, results)
    before, after, stored, uses = around.before, around.after, around.stored, around.uses
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
        shape = around.shape(codes)
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
