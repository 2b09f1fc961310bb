"""Short convolutions of a rewritten graph: shifted products, their sum and an activation as one of edgegen's
operators."""

import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from edgegen.graph.node import GraphNode, integer_attribute
from edgegen.graph.ternary import Constants

_ONE = struct.pack("<q", 1)
_END = struct.pack("<q", (1 << 63) - 1)


class _Convolution(NamedTuple):
    """The nodes of one convolution but those of its taps, the last of which gives the result; its inputs and what it
    keeps; the kernel's sizes."""

    nodes: Sequence[GraphNode]
    inputs: Sequence[bytes]
    present: bytes
    sizes: Mapping[bytes, int]


def with_causal_conv(
    nodes: Sequence[GraphNode | None], constants: Constants, results: Iterable[bytes]
) -> list[GraphNode | None]:
    """``nodes`` with ``edgegen.CausalConv`` in place of what an export writes for a short convolution, and of an
    activation after it, and None for the rest of that. ``results``: the graph's outputs."""
    replaced = dict[GraphNode, GraphNode | None]()
    for found in _found(nodes, constants, results):
        last = found.nodes[-1]
        attributes = {name: integer_attribute(name, value) for name, value in found.sizes.items()}
        replaced |= dict.fromkeys(found.nodes)
        replaced[last] = last.replaced(b"CausalConv", found.inputs, [last.outputs[0], found.present], attributes)
    if not replaced:
        return list(nodes)
    return _without_taps([replaced.get(node, node) if node else None for node in nodes], results)


def _without_taps(nodes: Sequence[GraphNode | None], results: Iterable[bytes]) -> list[GraphNode | None]:
    """``nodes`` without those that chose a tap, or counted tokens, and that nothing reads any more."""
    used = Counter(name for node in nodes if node for name in node.inputs)
    used.update(results)
    found = list(nodes)
    for place in range(len(found) - 1, -1, -1):
        node = found[place]
        if node and node.op_type in (b"Reshape", b"Gather", b"Shape", b"Add") and not any(map(used.get, node.outputs)):
            used.subtract(node.inputs)
            found[place] = None
    return found


def _found(nodes: Sequence[GraphNode | None], constants: Constants, results: Iterable[bytes]) -> Iterator[_Convolution]:
    joined = [node for node in nodes if node and node.op_type == b"Concat" and len(node.inputs) == 2]
    made = {name: node for node in nodes if node for name in node.outputs} if joined else {}
    readers = dict[bytes, list[GraphNode]]()
    for node in filter(None, nodes if joined else ()):
        for name in node.inputs:
            readers.setdefault(name, []).append(node)
    given = frozenset(results)

    def before(node: GraphNode | None, op_type: bytes, at: int = 0) -> GraphNode | None:
        """The node of this type that gives an input."""
        found = made.get(node.inputs[at]) if node and len(node.inputs) > at else None
        return found if found and found.op_type == op_type else None

    def after(node: GraphNode | None, op_type: bytes) -> GraphNode | None:
        """The node of this type that alone reads what ``node`` gives."""
        alone = readers.get(node.outputs[0], []) if node and node.outputs[0] not in given else []
        return alone[0] if len(alone) == 1 and alone[0].op_type == op_type else None

    def stored(name: bytes) -> bytes:
        return constants.get(name, (b"", ()))[0]

    def tap_of(product: GraphNode, at: int) -> bytes:
        """The kernel whose tap ``at`` is the second input of ``product``; empty where it is none."""
        chosen = before(before(product, b"Reshape", 1), b"Gather")
        if not chosen or len(chosen.inputs) != 2 or chosen.integer(b"axis", 0) != 2:
            return b""
        return chosen.inputs[0] if stored(chosen.inputs[1]) == struct.pack("<q", at) else b""

    for concat in joined:
        past, x = concat.inputs
        cuts = readers.get(concat.outputs[0], [])
        if concat.integer(b"axis") != 1 or any(cut.op_type != b"Slice" or len(cut.inputs) != 4 for cut in cuts):
            continue
        kept = [cut for cut in cuts if cut.outputs[0] in given]
        shifted = [cut for cut in cuts if cut.outputs[0] not in given]
        width = len(shifted)
        if len(kept) != 1 or width < 2 or any(stored(cut.inputs[3]) != _ONE for cut in cuts):
            continue
        if (stored(kept[0].inputs[1]), stored(kept[0].inputs[2])) != (struct.pack("<q", 1 - width), _END):
            continue
        own, total, kernels = [concat, kept[0]], None, set[bytes]()
        for at, cut in enumerate(shifted):
            product, stop = after(cut, b"Mul"), before(cut, b"Add", 2)
            count = before(stop, b"Shape")
            shift = struct.pack("<q", at)
            fits = product and product.inputs[0] == cut.outputs[0] and stop and count and count.inputs[0] == x
            if not product or not fits or stored(cut.inputs[1]) != shift or stored((stop or cut).inputs[1]) != shift:
                break
            if not count or (count.integer(b"start"), count.integer(b"end")) != (1, 2):
                break
            kernels.add(tap_of(product, at))
            own += [cut, product]
            if total is not None:
                added = after(total, b"Add")
                if (
                    not added
                    or added.inputs != [total.outputs[0], product.outputs[0]]
                    or added is not after(product, b"Add")
                ):
                    break
                own.append(added)
            total = own[-1]
        else:
            kernel = kernels.pop() if len(kernels) == 1 else b""
            shape = constants.get(kernel, (b"", ()))[1]
            if not kernel or len(shape) != 3 or shape[1:] != (1, width):
                continue
            bias, kind = b"", 0
            biased = after(total, b"Add")
            if (
                biased
                and biased.inputs[0] == own[-1].outputs[0]
                and constants.get(biased.inputs[1], (b"", ()))[1] == shape[:1]
            ):
                bias = biased.inputs[1]
                own.append(biased)
            active = after(own[-1], b"Activation")
            if active and active.integer(b"gate_axis") == 0:
                kind = 1 + (active.integer(b"kind") or 0)
                own.append(active)
            sizes = {b"channels": shape[0], b"width": width, b"activation": kind}
            yield _Convolution(own, [x, past, kernel, bias], kept[0].outputs[0], sizes)
