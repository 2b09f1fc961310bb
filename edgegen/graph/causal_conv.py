"""Short convolutions of a rewritten graph: shifted products, their sum and an activation as one of edgegen's
operators."""

import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from edgegen.graph.neighbours import Constants, Neighbours
from edgegen.graph.node import GraphNode, integer_attribute

_ONE = struct.pack("<q", 1)
_END = struct.pack("<q", (1 << 63) - 1)


class _Convolution(NamedTuple):
    """The nodes of one convolution but those of its taps, the last of which produces the result; its inputs and what it
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
    finder = _Finder(nodes if joined else (), constants, results)
    for concat in joined:
        if concat.integer(b"axis") == 1 and (found := finder.convolution(concat)):
            yield found


class _Finder(Neighbours):
    """Looks for what follows where the tokens before are put before new ones."""

    def convolution(self, concat: GraphNode) -> _Convolution | None:
        """The convolution of the output of ``concat``; None where something else is done with it."""
        past, x = concat.inputs
        cuts = self.readers(concat.outputs[0])
        if any(cut.op_type != b"Slice" or len(cut.inputs) != 4 or self.stored(cut, 3) != _ONE for cut in cuts):
            return None
        kept = [cut for cut in cuts if cut.outputs[0] in self.results]
        shifted = [cut for cut in cuts if cut.outputs[0] not in self.results]
        width = len(shifted)
        if len(kept) != 1 or width < 2 or self.numbers(kept[0], 1) != [1 - width] or self.stored(kept[0], 2) != _END:
            return None
        own, kernels, total = [concat, kept[0]], set[bytes](), None
        for at, cut in enumerate(shifted):
            product = self.after(cut, b"Mul")
            if not product or not self._is_shift(cut, at, x):
                return None
            kernels.add(self._tapped(product, at))
            own += [cut, product]
            if total:
                added = self.after(total, b"Add")
                if not added or added.inputs != [total.outputs[0], product.outputs[0]]:
                    return None
                if self.reader(product, b"Add") is not added:
                    return None
                own.append(added)
            total = own[-1]
        kernel = kernels.pop() if len(kernels) == 1 else b""
        channels, *rest = self.shape(kernel) or (0,)
        if rest != [1, width]:
            return None
        bias, kind, biased = b"", 0, self.after(total, b"Add")
        if biased and self.shape(biased.inputs[1]) == (channels,):
            bias = biased.inputs[1]
            own.append(biased)
        active = self.after(own[-1], b"Activation")
        if active and active.integer(b"gate_axis") == 0:
            kind = 1 + (active.integer(b"kind") or 0)
            own.append(active)
        sizes = {b"channels": channels, b"width": width, b"activation": kind}
        return _Convolution(own, [x, past, kernel, bias], kept[0].outputs[0], sizes)

    def _is_shift(self, cut: GraphNode, at: int, x: bytes) -> bool:
        """Whether ``cut`` takes as many tokens as x has, from token ``at`` on."""
        stop = self.before(cut, b"Add", 2)
        count = self.before(stop, b"Shape")
        if not stop or not count or count.inputs[0] != x:
            return False
        tokens = (count.integer(b"start"), count.integer(b"end")) == (1, 2)
        return tokens and self.numbers(cut, 1) == self.numbers(stop, 1) == [at]

    def _tapped(self, product: GraphNode, at: int) -> bytes:
        """The kernel whose tap ``at`` is the second input of ``product``; empty where there is no such tap."""
        chosen = self.before(self.before(product, b"Reshape", 1), b"Gather")
        if not chosen or len(chosen.inputs) != 2 or chosen.integer(b"axis", 0) != 2:
            return b""
        return chosen.inputs[0] if self.numbers(chosen, 1) == [at] else b""
