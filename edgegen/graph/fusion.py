"""Operator fusion in a rewritten graph: matrices, norms, activations and attention that follow one another become one
operator.

Between two operators ONNX Runtime goes on to the next node, and all its threads wait for the last of them. A model of
small matrices spends more time on that than on some of the nodes.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from edgegen.graph.node import GraphNode, integer_attribute, renamed_attribute

_MATRIX, _NORM, _ACTIVATION, _ATTENTION = range(4)
"""The operator's kinds of steps; ``kernels/layers/fused_layers.c`` has their inputs and attributes."""

_FUSED_ATTENTION = {
    b"CachedAttention": b"FusedLayers",
    b"CachedAttentionInt8": b"FusedLayersInt8",
    b"CachedAttentionInt4": b"FusedLayersInt4",
}
"""The operator of layers with attention over such a KV cache."""

_STEPS = {
    b"BlockMatMul": _MATRIX,
    b"Norm": _NORM,
    b"Activation": _ACTIVATION,
    **dict.fromkeys(_FUSED_ATTENTION, _ATTENTION),
}
_MOST = {_MATRIX: 33, _NORM: 33, _ACTIVATION: 64, _ATTENTION: 8}
"""How many steps of a kind the operator has inputs for."""
_MOST_STEPS = 64

_PAST_KEY, _LENGTHS, _BIAS, _INPUTS_OF_ATTENTION = 3, 5, 10, 16
_PACKED = [b"", b""]
"""Inputs of keys and values that lie behind the query."""


@dataclass(slots=True)
class _Fused:
    """Nodes that follow one another, by their places in the graph.

    Attributes:
        skip: what the first norm that skips adds; empty before the first one.
        total: the sum of the last norm that skips; empty if nothing reads it.
        kinds: how many steps there are of a kind.
        attention: the type of the nodes that are attention; empty if there is none.
    """

    places: list[int] = field(default_factory=list[int])
    skip: bytes = b""
    total: bytes = b""
    kinds: Counter[int] = field(default_factory=Counter[int])
    attention: bytes = b""


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
            fused.kinds[kind := _STEPS[node.op_type]] += 1
            if kind == _NORM and (skip := _skipped(node, value)):
                fused.skip = fused.skip or skip
                fused.total = [*node.outputs, b""][1]
            elif kind == _ATTENTION:
                fused.attention = node.op_type
            # Fused layers that end here must stand before all others that read their sum.
            if kind != _ACTIVATION and all(reader > place for reader in self._readers.get(fused.total, [])):
                whole = replace(fused, places=[*fused.places])
            value = node.outputs[0]
            place = self._only_reader(value)
        return whole

    def _fits(self, fused: _Fused, node: GraphNode, value: bytes) -> bool:
        """Whether ``node`` goes on with ``value``, which the nodes before it produce (empty: it is the first)."""
        kind = _STEPS[node.op_type]
        if fused.kinds[kind] == _MOST[kind]:
            return False
        if kind == _ATTENTION:
            return node.inputs[0] == value and self._attends_here(fused, node)
        if kind != _NORM:
            return not value or node.inputs[0] == value
        skip = _skipped(node, value)
        if not skip or not fused.skip:
            return True
        return skip == fused.total and self._only_reader(skip) is not None

    def _attends_here(self, fused: _Fused, node: GraphNode) -> bool:
        """Whether attention can be one of the steps: over a KV cache like the others', which no other node reads."""
        alike = fused.attention in (b"", node.op_type)
        shared = any(name in self._readers for name in node.outputs[1:])
        return alike and not shared and list(node.inputs[1:_PAST_KEY]) == _PACKED

    def _only_reader(self, value: bytes) -> int | None:
        """The node that alone reads a value; None if there are others, or the graph's caller gets it."""
        readers = self._readers.get(value, [])
        return readers[0] if len(readers) == 1 and value not in self._results else None


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
    inputs: dict[int, list[bytes]] = {kind: [] for kind in (_MATRIX, _NORM, _ATTENTION)}
    outputs, positions = [last.outputs[0], fused.total], list[bytes]()
    attributes = {b"steps": integer_attribute(b"steps", len(steps))}
    for i, step in enumerate(steps):
        number, kind = str(i).encode(), _STEPS[step.op_type]
        values = _padded(step.inputs, _INPUTS_OF_ATTENTION)
        attributes[b"step" + number] = integer_attribute(b"step" + number, kind)
        if kind == _MATRIX:
            inputs[kind] += values[1:5]
        elif kind == _NORM:
            inputs[kind] += [values[1], values[2], values[4]]
            attributes[b"skips" + number] = integer_attribute(b"skips" + number, int(bool(values[3])))
        elif kind == _ATTENTION:
            if values[_LENGTHS:_BIAS] == positions:  # those of the attention before, which are read once
                values[_LENGTHS:_BIAS] = [b""] * len(positions)
            else:
                positions = values[_LENGTHS:_BIAS]
            inputs[kind] += values[_PAST_KEY:]
            outputs += step.outputs[1:]
        for name, attribute in step.attributes.items():
            attributes[name + number] = renamed_attribute(attribute, name + number)
    matrices, norms = _padded(inputs[_MATRIX], 4 * _MOST[_MATRIX]), _padded(inputs[_NORM], 3 * _MOST[_NORM])
    operator = _FUSED_ATTENTION.get(fused.attention, b"FusedLayers")
    return last.replaced(
        operator, [first.inputs[0], fused.skip, *matrices, *norms, *inputs[_ATTENTION]], outputs, attributes
    )


def _padded(names: Sequence[bytes], count: int) -> list[bytes]:
    """``names``, and behind them inputs that are left out."""
    return [*names, *[b""] * (count - len(names))]
