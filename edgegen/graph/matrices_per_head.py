"""Matrices of each head in a rewritten graph: what an export writes for them as one of edgegen's operators."""

import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from edgegen.graph.neighbours import Constants, Neighbours
from edgegen.graph.node import GraphNode, integer_attribute

_MIDDLE = struct.pack("<f", 128.0)
_ROW_OF_ZEROS = struct.pack("<6q", 0, 0, 0, 0, 1, 0)
_ONE_LESS = tuple(struct.pack("<q", value) for value in (0, -1, 1))


class _Heads(NamedTuple):
    """The nodes of one product, the last of which produces the result; what is multiplied; codes and scales; the
    matrices' sizes."""

    nodes: Sequence[GraphNode]
    x: bytes
    codes: bytes
    scales: bytes
    sizes: Mapping[bytes, int]


def with_matrices_per_head(
    nodes: Sequence[GraphNode | None], constants: Constants, results: Iterable[bytes]
) -> list[GraphNode | None]:
    """``nodes`` with ``edgegen.BlockMatMulPerHead`` in place of what an export writes for quantized matrices of heads,
    and None for the rest of that. ``results``: the graph's outputs."""
    replaced = dict[GraphNode, GraphNode | None]()
    for found in _found(nodes, constants, results):
        last = found.nodes[-1]
        attributes = {name: integer_attribute(name, value) for name, value in found.sizes.items()}
        replaced |= dict.fromkeys(found.nodes)
        inputs = [found.x, found.codes, found.scales]
        replaced[last] = last.replaced(b"BlockMatMulPerHead", inputs, last.outputs, attributes)
    return [replaced.get(node, node) if node else None for node in nodes]


def _found(nodes: Sequence[GraphNode | None], constants: Constants, results: Iterable[bytes]) -> Iterator[_Heads]:
    products = [node for node in nodes if node and node.op_type == b"FusedMatMul"]
    around = Neighbours(nodes if products else (), constants, results)
    before, after, stored, uses = around.before, around.after, around.stored, around.uses
    for product in products:
        padded, shaped = before(product, b"Pad"), before(product, b"Reshape", 1)
        turned, scaled = before(padded, b"Transpose"), before(shaped, b"Mul")
        less, scales = before(scaled, b"Sub"), before(scaled, b"Cast", 1)
        wide, cut = before(less, b"Cast"), after(product, b"Slice")
        last = after(cut, b"Transpose")
        if not (padded and shaped and turned and scaled and less and scales and wide and cut and last):
            continue
        codes = wide.inputs[0]
        shape, to = around.shape(codes), around.numbers(shaped, 1)
        if len(shape) != 3 or len(to) != 3:
            continue
        heads, rows, columns = to
        own = [turned, padded, wide, less, scaled, shaped, product, cut, last]
        as_exported = (
            turned.integers(b"perm") == last.integers(b"perm") == [1, 0, 2]
            and set(product.attributes) == {b"transB"}
            and product.integer(b"transB") == 1
            and not padded.attributes
            and stored(padded, 1) == _ROW_OF_ZEROS
            and len(padded.inputs) == 2
            and stored(less, 1) == _MIDDLE
            and tuple(stored(cut, at) for at in (1, 2, 3)) == _ONE_LESS
            and len(cut.inputs) == 4
            and min(heads, rows) > 0
            and shape[0] == heads * rows
            and shape[1] * shape[2] == columns
            and around.is_constant(scales.inputs[0])
            and all(uses[node.outputs[0]] == 1 for node in own[:-1])
        )
        if as_exported:
            sizes = {b"heads": heads, b"K": columns, b"N": rows, b"bits": 8, b"block_size": shape[2]}
            yield _Heads(own, turned.inputs[0], codes, scales.inputs[0], sizes)
