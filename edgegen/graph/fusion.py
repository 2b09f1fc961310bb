"""Operator fusion in a rewritten graph: matrices, norms and activations that follow one another become one operator.

Between two operators ONNX Runtime goes on to the next node, and all its threads wait for the last of them. A model of
small matrices spends more time on that than on some of the nodes.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from edgegen.graph.node import GraphNode, integer_attribute, renamed_attribute

_MATRIX, _NORM, _ACTIVATION = range(3)
"""The operator's kinds of steps; ``kernels/layers/fused_layers.c`` has their inputs and attributes."""

_STEPS = {b"BlockMatMul": _MATRIX, b"Norm": _NORM, b"Activation": _ACTIVATION}
_MOST_STEPS = 16


@dataclass(slots=True)
class _Fused:
    """Nodes that follow one another, by their places in the graph.

    Attributes:
        skip: what the first norm that skips adds; empty before the first one.
        total: the sum of the last norm that skips; empty if nothing reads it.
    """

    places: list[int] = field(default_factory=list[int])
    skip: bytes = b""
    total: bytes = b""


def with_fused_layers(nodes: Sequence[GraphNode | None], results: Iterable[bytes]) -> list[GraphNode | None]:
    """``nodes`` with ``edgegen.FusedLayers`` in place of several of edgegen's operators that follow one another.

    The last node of fused layers is replaced, and the others are None. ``results``: the graph's outputs.
    """
    finder = _Finder(nodes, results)
    replaced = list(nodes)
    for begin in range(len(nodes)):
        fused = finder.longest_from(begin)
        steps = [step for place in fused.places if (step := nodes[place])]
        if len(steps) > 1 and any(step.op_type == b"BlockMatMul" for step in steps):
            finder.taken.update(fused.places)
            for place in fused.places:
                replaced[place] = None
            replaced[fused.places[-1]] = _joined(steps, fused)
    return replaced


class _Finder:
    """Follows values from node to node.

    Attributes:
        taken: places of nodes that are part of fused layers.
    """

    def __init__(self, nodes: Sequence[GraphNode | None], results: Iterable[bytes]) -> None:
        self.taken = set[int]()
        self._nodes = nodes
        self._results = frozenset(results)
        self._readers = dict[bytes, list[int]]()
        for place, node in enumerate(nodes):
            for name in filter(None, node.inputs if node else ()):
                self._readers.setdefault(name, []).append(place)

    def longest_from(self, begin: int) -> _Fused:
        """The most nodes to fuse from ``begin`` on, down to a matrix or a norm; empty if ``begin`` is not a step."""
        fused, whole = _Fused(), _Fused()
        place: int | None = begin
        value = b""
        while place is not None and len(fused.places) < _MOST_STEPS:
            node = self._nodes[place]
            if node is None or place in self.taken or not _is_step(node) or not self._fits(fused, node, value):
                break
            fused.places.append(place)
            if node.op_type == b"Norm" and (skip := _skipped(node, value)):
                fused.skip = fused.skip or skip
                fused.total = [*node.outputs, b""][1]
            if node.op_type != b"Activation" and self._comes_first(place, fused.total):
                whole = _Fused([*fused.places], fused.skip, fused.total)
            value = node.outputs[0]
            place = self._only_reader(value)
        return whole

    def _fits(self, fused: _Fused, node: GraphNode, value: bytes) -> bool:
        """Whether ``node`` goes on with ``value``, which the nodes before it produce (empty: it is the first)."""
        if node.op_type != b"Norm":
            return not value or node.inputs[0] == value
        skip = _skipped(node, value)
        if not skip or not fused.skip:
            return True
        return skip == fused.total and self._only_reader(skip) is not None

    def _only_reader(self, value: bytes) -> int | None:
        """The node that alone reads a value; None if there are others, or the graph's caller gets it."""
        readers = self._readers.get(value, [])
        return readers[0] if len(readers) == 1 and value not in self._results else None

    def _comes_first(self, place: int, value: bytes) -> bool:
        """Whether fused layers that end at ``place`` stand before all that read ``value`` and are not part of it."""
        return all(reader > place for reader in self._readers.get(value, []))


def _is_step(node: GraphNode) -> bool:
    return node.domain == b"edgegen" and node.op_type in _STEPS


def _skipped(norm: GraphNode, value: bytes) -> bytes:
    """Return the value that a norm adds to ``value`` (empty: to its first input); a sum has no order. Empty if it adds
    none."""
    x, skip = norm.inputs[0], [*norm.inputs, b"", b"", b""][3]
    return x if skip and skip == value else skip


def _joined(steps: Sequence[GraphNode], fused: _Fused) -> GraphNode:
    """One node in the place of the last of ``steps``."""
    first, last = steps[0], steps[-1]
    inputs = [first.inputs[0], fused.skip]
    attributes = {b"steps": integer_attribute(b"steps", len(steps))}
    for i, step in enumerate(steps):
        number = str(i).encode()
        values = [*step.inputs, b"", b"", b"", b""]
        kept = {b"step": integer_attribute(b"step", _STEPS[step.op_type]), **step.attributes}
        if step.op_type == b"BlockMatMul":
            inputs += values[1:5]
        elif step.op_type == b"Norm":
            inputs += [values[1], values[2], values[4]]
            kept[b"skips"] = integer_attribute(b"skips", int(bool(values[3])))
        for name, attribute in kept.items():
            attributes[name + number] = renamed_attribute(attribute, name + number)
    return last.replaced(b"FusedLayers", inputs, [last.outputs[0], fused.total], attributes)
