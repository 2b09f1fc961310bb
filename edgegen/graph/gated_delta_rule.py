"""Gated delta nets of a rewritten graph: the recurrence, with the norms and the gate around it, as one of edgegen's
operators."""

import struct
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from edgegen.graph.neighbours import Constants, Neighbours
from edgegen.graph.node import GraphNode, integer_attribute, real_attribute, renamed_attribute, text_of

_ATTRIBUTES = {b"update_rule", b"scale", b"q_num_heads", b"kv_num_heads"}


class _Around(NamedTuple):
    """Nodes that become part of the operator, and what it reads instead of their results."""

    nodes: Sequence[GraphNode]
    inputs: Sequence[bytes]
    attributes: Mapping[bytes, bytes]


def with_gated_delta_rule(
    nodes: Sequence[GraphNode | None], constants: Constants, results: Iterable[bytes]
) -> list[GraphNode | None]:
    """``nodes`` with ``edgegen.GatedDeltaRule`` in place of ``LinearAttention`` by the gated delta rule, and of what an
    export writes around it, and None for the rest of that. ``results``: the graph's outputs."""
    found = [node for node in nodes if node and node.op_type == b"LinearAttention"]
    replaced, finder = dict[GraphNode, GraphNode | None](), _Finder(nodes if found else (), constants, results)
    for node in found:
        heads, q_heads, keys = node.integer(b"kv_num_heads"), node.integer(b"q_num_heads"), finder.keys_of(node)
        rule = text_of(node.attributes.get(b"update_rule", b""))
        if set(node.attributes) != _ATTRIBUTES or rule != b"gated_delta" or len(node.inputs) != 6 or not keys:
            continue
        if not heads or not q_heads:
            continue
        before, after = finder.units_of(node, keys), finder.gate_of(node, keys)
        own = [*before.nodes, node, *after.nodes]
        sizes = {b"q_heads": q_heads, b"heads": heads, b"keys": keys[0], b"values": keys[1]}
        attributes = {name: integer_attribute(name, size) for name, size in sizes.items()}
        attributes |= {b"scale": node.attributes[b"scale"], **before.attributes, **after.attributes}
        q, k, weight = before.inputs
        replaced |= dict.fromkeys(own)
        inputs = [q, k, *node.inputs[2:], weight, *after.inputs]
        outputs = [own[-1].outputs[0], node.outputs[1]]
        replaced[own[-1]] = own[-1].replaced(b"GatedDeltaRule", inputs, outputs, attributes)
    return [replaced.get(node, node) if node else None for node in nodes]


class _Finder(Neighbours):
    """Looks for what stands around a recurrence."""

    def keys_of(self, node: GraphNode) -> tuple[int, int] | None:
        """Keys and values of a head: what the shapes around tell; None where they do not."""
        q, read = self.alone_before(node, b"Reshape"), self.after(node, b"Reshape")
        if not q or not read:
            return None
        heads, values = self._split_of(read)
        q_heads, shape = node.integer(b"q_num_heads") or 1, self.numbers(q, 1)
        if len(shape) != 3 or shape[:2] != [0, 0] or not heads or shape[2] % q_heads:
            return None
        return shape[2] // q_heads, values

    def units_of(self, node: GraphNode, sizes: tuple[int, int]) -> _Around:
        """The norms of q and k, where both are alike and alone; else nothing."""
        kept = _Around((), [*node.inputs[:2], b""], {b"q_epsilon": real_attribute(b"q_epsilon", 0.0)})
        found, taken = list[GraphNode](), list[bytes]()
        weights, epsilons = set[bytes](), set[bytes]()
        for at in (0, 1):
            whole = self.alone_before(node, b"Reshape", at)
            norm = self.alone_before(whole, b"Norm")
            split = self.alone_before(norm, b"Reshape")
            if not whole or not norm or not split or not self._plain(norm):
                return kept
            if self._split_of(split) != (node.integer(b"q_num_heads"), sizes[0]):
                return kept
            found += [split, norm, whole]
            taken.append(split.inputs[0])
            weights.add(norm.inputs[1])
            epsilons.add(norm.attributes[b"epsilon"])
        if len(weights) > 1 or len(epsilons) > 1:
            return kept
        epsilon = renamed_attribute(epsilons.pop(), b"q_epsilon")
        return _Around(found, [*taken, weights.pop()], {b"q_epsilon": epsilon})

    def gate_of(self, node: GraphNode, sizes: tuple[int, int]) -> _Around:
        """The norm of what is read, its weight and the gate; else nothing."""
        numbers = {b"epsilon": real_attribute(b"epsilon", 0.0), b"activation": integer_attribute(b"activation", 0)}
        nothing = _Around((), (), numbers)
        split = self.after(node, b"Reshape")
        norm = self.after(split, b"Norm")
        whole = self.after(norm, b"Reshape")
        weighed = self.after(whole, b"Mul")
        gated = self.after(weighed, b"Mul")
        if not split or not norm or not whole or not weighed or not gated or not self._plain(norm):
            return nothing
        heads, values = self._split_of(split)
        ones = self.stored(norm, 1) == struct.pack("<f", 1.0) * values
        fits = values == sizes[1] and ones and self.shape(weighed.inputs[1]) == (heads * values,)
        active = self.alone_before(gated, b"Activation", 1)
        if not fits or not active:
            return nothing
        if active.integer(b"gate_axis") != 0 or len(active.inputs) != 1:
            return nothing
        kind = integer_attribute(b"activation", active.integer(b"kind") or 0)
        inputs = [weighed.inputs[1], active.inputs[0]]
        attributes = {b"epsilon": norm.attributes[b"epsilon"], b"activation": kind}
        return _Around([active, split, norm, whole, weighed, gated], inputs, attributes)

    def _plain(self, norm: GraphNode) -> bool:
        """Whether a norm is a root mean square of one input, with a weight and no bias."""
        return norm.integer(b"centered") == 0 and len(norm.inputs) == 2 and len(norm.outputs) == 1

    def _split_of(self, node: GraphNode) -> tuple[int, int]:
        """The heads that a reshape makes of channels, and the channels of each; zeros where it does another thing."""
        shape = self.numbers(node, 1)
        return (shape[2], shape[3]) if len(shape) == 4 and shape[:2] == [0, 0] and min(shape[2:]) > 0 else (0, 0)
