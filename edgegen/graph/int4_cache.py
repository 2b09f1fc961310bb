"""Graphs on our kernels, with a float32 KV cache, rewritten to keep it in int4."""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from edgegen.graph.node import GraphNode
from edgegen.graph.protobuf import (
    edited,
    field,
    fields,
    float_field,
    float_tensor,
    integer_field,
    integer_value,
    retyped,
    values,
)

if TYPE_CHECKING:  # help and lists do without
    import numpy as np
    from numpy.typing import NDArray

KeyMeans = Mapping[str, "NDArray[np.float32]"]
"""Means of keys as a KV cache has them, [kv_heads, head_dim], by the graph's input of past keys; perhaps of none."""

_GRAPH = 7
_NODE, _INITIALIZER, _INPUT_VALUE, _OUTPUT_VALUE = 1, 5, 11, 12
_INPUT, _OUTPUT, _OP_TYPE = 1, 2, 4
_VALUE_NAME, _DIMENSION, _SIZE = 1, 1, 1
_UINT8 = 2
_PAST_KEY, _PAST_VALUE, _SINK, _MEANS = 3, 4, 11, 12
_LEVELS = 4
_NO_CAP = float_field(2, 0.0)


def with_int4_cache(graph: bytes, means: KeyMeans) -> bytes:
    """``graph``, which :func:`~edgegen.graph.kernel_operators.with_kernels` gave, with ``CachedAttentionInt4`` in place
    of ``CachedAttention``, and arrays of bytes for its KV cache.

    ``means`` are subtracted from the keys, which takes the same from all scores of a query. Where those are capped, or
    beside a sink, it would be seen: then no layer uses them, as layers may share their keys.

    Raises:
        ValueError: that is no graph, or has attention that our kernels do not compute, or over another KV cache, or has
            not the inputs of ``means``.
    """
    body = next(values(graph, _GRAPH))
    nodes = [node for message in values(body, _NODE) if (node := _attention(message))]
    cached = {name for node in nodes for name in _cached(node)}
    if not cached:
        raise ValueError("it has no attention over a float32 KV cache that edgegen's kernels compute")
    if missing := sorted(name for name in means if name.encode() not in cached):
        raise ValueError(f"it has no input {missing[0]}, of whose keys there is a mean")
    taken = {} if any(map(_shows_shift, nodes)) else {name.encode(): mean for name, mean in means.items()}

    def part(number: int, payload: bytes, whole: bytes) -> bytes:
        if number == _NODE and (node := _attention(payload)):
            return field(_NODE, _over_int4(node, node.inputs[_PAST_KEY] in taken))
        if number in (_INPUT_VALUE, _OUTPUT_VALUE) and next(values(payload, _VALUE_NAME)) in cached:
            return field(number, retyped(payload, _UINT8, _in_bytes))
        return whole

    added = [field(_INITIALIZER, float_tensor(_mean_of(name).decode(), mean)) for name, mean in taken.items()]
    return edited(graph, _GRAPH, lambda _: b"".join([*(part(*one) for one in fields(body)), *added]))


def _attention(node: bytes) -> GraphNode | None:
    """A node of attention over a float32 KV cache."""
    kind = next(values(node, _OP_TYPE))
    if kind in (b"GroupQueryAttention", b"CachedAttentionInt8"):
        raise ValueError(f"it has {kind.decode()}")
    return GraphNode.parsed(node) if kind == b"CachedAttention" else None


def _cached(node: GraphNode) -> list[bytes]:
    """The tensors of the KV cache that a node reads and writes."""
    return [node.inputs[_PAST_KEY], node.inputs[_PAST_VALUE], *node.outputs[1:3]]


def _shows_shift(node: GraphNode) -> bool:
    """Whether what is added to all scores of a query changes their weights."""
    return any(node.inputs[_SINK : _SINK + 1]) or _NO_CAP not in node.attributes.get(b"softcap", _NO_CAP)


def _over_int4(node: GraphNode, with_mean: bool) -> bytes:
    message = edited(node.message, _OP_TYPE, lambda _: b"CachedAttentionInt4")
    if not with_mean:
        return message
    left_out = [b""] * (_MEANS - len(node.inputs))
    return message + b"".join(field(_INPUT, name) for name in (*left_out, _mean_of(node.inputs[_PAST_KEY])))


def _mean_of(past: bytes) -> bytes:
    return past + b".mean"


def _in_bytes(shape: bytes) -> bytes:
    """The shape of a KV cache, a vector of which becomes bytes: two codes each, and the levels."""
    *others, last = values(shape, _DIMENSION)
    size = integer_value(last, _SIZE)
    row = last if size is None else integer_field(_SIZE, int4_row(size))  # an axis of a name stays
    return b"".join(field(_DIMENSION, one) for one in (*others, row))


def int4_row(head_dim: int) -> int:
    """Bytes of one head's keys, or values, of one position: two codes each, a scale and a middle."""
    return (head_dim + 1) // 2 + _LEVELS
