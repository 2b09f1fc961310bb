"""Pending tokens: the last ones of a run, whose inputs are kept until it is known whether they are accepted.

Operators with a fixed state leave them out of it. So a state that every token overwrites can be rolled back to any of
them, by saying how many count: in the next run these become part of it first, in the same order of operations.
"""

from collections.abc import Iterable, Mapping, Sequence, Set

from edgegen.graph.node import GraphNode
from edgegen.graph.protobuf import field, tensor_value

Shapes = Mapping[bytes, tuple[int, ...]]
"""Of initializers, by name."""

MOST_PENDING = 4
"""Tokens of a sequence; states take far more than the inputs of so few."""

SPANS = "pending_spans"
"""An input int32 [batch, 2]: how many pending tokens become part of the states first, and how many of the run's do."""

_PLACES = {b"CausalConv": 4, b"GatedDeltaRule": 9, b"SelectiveScan": 6}
"""Where the operators read pending tokens; the spans come next."""
_PAST = {b"CausalConv": 1, b"GatedDeltaRule": 3, b"SelectiveScan": 0}
_RATE = 5
_PRESENT = {b"CausalConv": 1, b"GatedDeltaRule": 1, b"SelectiveScan": 0}

_INPUT, _OUTPUT = 11, 12
_FLOAT, _INT32 = 1, 6


def pending_input(past: str) -> str:
    """The input with the pending tokens of the state that is read as ``past``."""
    return f"{past}.pending"


def pending_output(past: str) -> str:
    """The output of the same shape, whose memory is that of :func:`pending_input`."""
    return f"{past}.left"


def pending_bytes(shape: Sequence[int]) -> int:
    """Bytes of the pending tokens of one sequence, and of a copy of them, at most, for a state of that shape: of a
    convolution [w - 1, d], a scan [n, d], or a delta net [heads, keys, values]."""
    match shape:
        case (numbers, channels):
            width = 2 * channels + numbers
        case (heads, keys, values):
            width = heads * (2 * keys + values + 1)
        case _:
            width = 0
    return 2 * 4 * MOST_PENDING * width


def with_pending_tokens(
    nodes: Sequence[GraphNode | None], states: Set[bytes], shapes: Shapes, results: Iterable[bytes]
) -> tuple[list[GraphNode | None], bytes]:
    """``nodes`` whose operators read pending tokens, and the fields of a ``GraphProto`` that say so.

    ``states``: the inputs that are fixed states; ``results``: the graph's outputs. Either all states can do
    without their last tokens, or nothing changes.
    """
    replaced, values, kept = dict[GraphNode, GraphNode](), list[bytes](), frozenset(results)
    for node in nodes if states else ():
        past = _state(node, kept) if node else b""
        if node is None or past not in states:
            continue
        width = _width(node, shapes)
        names = [pending_input(past.decode()), pending_output(past.decode())]
        taken, left = (name.encode() for name in names)
        inputs = [*node.inputs, *[b""] * (_PLACES[node.op_type] - len(node.inputs)), taken, SPANS.encode()]
        replaced[node] = node.replaced(node.op_type, inputs, [*node.outputs, left], node.attributes)
        sizes = (b"batch", MOST_PENDING, width)
        values += [field(_INPUT, tensor_value(taken, _FLOAT, sizes)), field(_OUTPUT, tensor_value(left, _FLOAT, sizes))]
    if not replaced or len(replaced) < len(states):
        return list(nodes), b""
    values.append(field(_INPUT, tensor_value(SPANS.encode(), _INT32, (b"batch", 2))))
    return [replaced.get(node, node) if node else None for node in nodes], b"".join(values)


def _state(node: GraphNode, results: Set[bytes]) -> bytes:
    """The state that an operator overwrites; empty where it has none, or the graph does not return it."""
    if node.domain != b"edgegen" or node.op_type not in _PLACES or len(node.outputs) != 2:
        return b""
    return node.inputs[_PAST[node.op_type]] if node.outputs[_PRESENT[node.op_type]] in results else b""


def _width(node: GraphNode, shapes: Shapes) -> int:
    """Numbers of a pending token, at most: a delta net's decays may be one for each head, or for each key."""
    if node.op_type == b"SelectiveScan":
        numbers, channels = shapes[node.inputs[_RATE]]
        return 2 * channels + numbers
    channels, q_heads, heads, keys, values = (
        node.integer(name, 0) or 0 for name in (b"channels", b"q_heads", b"heads", b"keys", b"values")
    )
    return channels or q_heads * keys + heads * (values + keys + 1)
