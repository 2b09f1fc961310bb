"""Gated delta nets of a rewritten graph: the recurrence, with the norms and the gate around it, as one of edgegen's
operators."""

import struct
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from edgegen.graph.node import GraphNode, integer_attribute, real_attribute, renamed_attribute, text_of
from edgegen.graph.ternary import Constants

_ATTRIBUTES = {b"update_rule", b"scale", b"q_num_heads", b"kv_num_heads"}


class _Around(NamedTuple):
    """Nodes that become part of the operator, and what it takes instead of their results."""

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


class _Finder:
    """Looks for what stands around a recurrence."""

    def __init__(self, nodes: Iterable[GraphNode | None], constants: Constants, results: Iterable[bytes]) -> None:
        self._constants = constants
        self._made = dict[bytes, GraphNode]()
        self._readers = dict[bytes, list[GraphNode]]()
        for node in filter(None, nodes):
            self._made |= dict.fromkeys(node.outputs, node)
            for name in node.inputs:
                self._readers.setdefault(name, []).append(node)
        self._uses = Counter({name: len(found) for name, found in self._readers.items()})
        self._uses.update(results)

    def keys_of(self, node: GraphNode) -> tuple[int, int] | None:
        """Keys and values of a head: what the shapes around tell; None where they do not."""
        q, read = self._before(node, b"Reshape"), self._after(node, b"Reshape")
        if not q or not read:
            return None
        heads, values = self._split_of(read)
        shape = self._numbers(q, 1)
        if len(shape) != 3 or shape[:2] != [0, 0] or not heads or shape[2] % (node.integer(b"q_num_heads") or 1):
            return None
        return shape[2] // (node.integer(b"q_num_heads") or 1), values

    def units_of(self, node: GraphNode, sizes: tuple[int, int]) -> _Around:
        """The norms of q and k, where both are alike and alone; else nothing."""
        kept = _Around((), [*node.inputs[:2], b""], {b"q_epsilon": real_attribute(b"q_epsilon", 0.0)})
        found, taken = list[GraphNode](), list[bytes]()
        weights, epsilons = set[bytes](), set[bytes]()
        for at in (0, 1):
            whole = self._before(node, b"Reshape", at)
            norm = self._before(whole, b"Norm")
            split = self._before(norm, b"Reshape")
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
        split = self._after(node, b"Reshape")
        norm = self._after(split, b"Norm")
        whole = self._after(norm, b"Reshape")
        weighed = self._after(whole, b"Mul")
        gated = self._after(weighed, b"Mul")
        if not split or not norm or not whole or not weighed or not gated or not self._plain(norm):
            return nothing
        heads, values = self._split_of(split)
        ones, _ = self._constants.get(norm.inputs[1], (b"", ()))
        shape = self._constants.get(weighed.inputs[1], (b"", ()))[1]
        fits = values == sizes[1] and ones == struct.pack("<f", 1.0) * values and shape == (heads * values,)
        active = self._made.get(gated.inputs[1])
        if not fits or not active or active.op_type != b"Activation" or self._uses[gated.inputs[1]] != 1:
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
        shape = self._numbers(node, 1)
        return (shape[2], shape[3]) if len(shape) == 4 and shape[:2] == [0, 0] and min(shape[2:]) > 0 else (0, 0)

    def _numbers(self, node: GraphNode, at: int) -> list[int]:
        data = self._constants.get([*node.inputs, b"", b""][at], (b"", ()))[0]
        return list(struct.unpack(f"<{len(data) // 8}q", data)) if len(data) % 8 == 0 else []

    def _before(self, node: GraphNode | None, op_type: bytes, at: int = 0) -> GraphNode | None:
        """The node of this type that gives an input, which nothing else reads."""
        name = node.inputs[at] if node and len(node.inputs) > at else b""
        found = self._made.get(name)
        return found if found and found.op_type == op_type and self._uses[name] == 1 else None

    def _after(self, node: GraphNode | None, op_type: bytes) -> GraphNode | None:
        """The node of this type that alone reads what ``node`` gives, as its first input."""
        name = node.outputs[0] if node else b""
        readers = self._readers.get(name, []) if self._uses[name] == 1 else []
        return readers[0] if readers and readers[0].op_type == op_type and readers[0].inputs[0] == name else None
