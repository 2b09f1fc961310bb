"""Softplus in a rewritten graph: the nodes of its exact formula as one of edgegen's operators."""

import struct
from collections.abc import Iterable, Sequence

from edgegen.graph.neighbours import Constants, Neighbours
from edgegen.graph.node import GraphNode
from edgegen.graph.norms_and_activations import NEGATIVE_SOFTPLUS, activation

_LAST_AXIS, _SECOND = struct.pack("<q", -1), struct.pack("<q", 1)
_LAST = (1 << 64) - 1
"""-1, as protocol buffers have it in an attribute."""


def with_softplus(
    nodes: Sequence[GraphNode | None], constants: Constants, results: Iterable[bytes]
) -> list[GraphNode | None]:
    """``nodes`` with ``edgegen.Activation`` in place of ``log_softmax([x, 0])`` at the 0, which is ``-softplus(x)``,
    and None for the rest of that. ``results``: the graph's outputs."""
    if not any(node and node.op_type == b"LogSoftmax" for node in nodes):
        return list(nodes)
    around = Neighbours(nodes, constants, results)

    def stored(node: GraphNode) -> tuple[bytes, int]:
        """The bytes and the rank of the second input, where that is a constant and the last one."""
        data, shape = constants.get(node.inputs[1], (b"", ())) if len(node.inputs) == 2 else (b"", ())
        return data, len(shape)

    replaced = dict[GraphNode, GraphNode | None]()
    for last in nodes:
        if not last or last.op_type != b"Gather":
            continue
        logs = around.alone_before(last, b"LogSoftmax")
        padded = around.alone_before(logs, b"Pad")
        wide = around.alone_before(padded, b"Unsqueeze")
        if not (logs and padded and wide):
            continue
        pads, _ = stored(padded)
        as_exported = (
            stored(last) == (_SECOND, 0)
            and last.integer(b"axis") == logs.integer(b"axis") == _LAST
            and not padded.attributes
            and len(pads) % 16 == 0
            and pads == bytes(max(0, len(pads) - 8)) + _SECOND
            and stored(wide) == (_LAST_AXIS, 1)
        )
        if as_exported:
            replaced |= {wide: None, padded: None, logs: None}
            replaced[last] = activation(last, NEGATIVE_SOFTPLUS, wide.inputs[:1])
    return [replaced.get(node, node) if node else None for node in nodes]
