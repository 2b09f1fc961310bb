"""Graphs on our kernels, with a float32 KV cache, rewritten to keep it in int4."""

from edgegen.graph.protobuf import edited, field, fields, integer, integer_field, values

_GRAPH = 7
_NODE, _INPUT_VALUE, _OUTPUT_VALUE = 1, 11, 12
_INPUT, _OUTPUT, _OP_TYPE = 1, 2, 4
_VALUE_NAME, _VALUE_TYPE, _TENSOR_TYPE, _ELEMENT_TYPE, _SHAPE, _DIMENSION, _SIZE = 1, 2, 1, 1, 2, 1, 1
_UINT8 = 2
_PAST_KEY, _PAST_VALUE = 3, 4
_LEVELS = 4


def with_int4_cache(graph: bytes) -> bytes:
    """``graph``, which :func:`~edgegen.graph.kernel_operators.with_kernels` gave, with ``CachedAttentionInt4`` in place
    of ``CachedAttention``, and arrays of bytes for its KV cache.

    Raises:
        ValueError: that is no graph, or has attention that our kernels do not compute, or over another KV cache.
    """
    body = next(values(graph, _GRAPH))
    cached = {name for message in values(body, _NODE) for name in _cached(message)}
    if not cached:
        raise ValueError("it has no attention over a float32 KV cache that edgegen's kernels compute")

    def part(number: int, payload: bytes, whole: bytes) -> bytes:
        if number == _NODE and _cached(payload):
            return field(_NODE, edited(payload, _OP_TYPE, lambda _: b"CachedAttentionInt4"))
        if number in (_INPUT_VALUE, _OUTPUT_VALUE) and next(values(payload, _VALUE_NAME)) in cached:
            return field(number, _in_bytes(payload))
        return whole

    return edited(graph, _GRAPH, lambda _: b"".join(part(*one) for one in fields(body)))


def _cached(node: bytes) -> list[bytes]:
    """The tensors of the KV cache that a node reads and writes."""
    kind = next(values(node, _OP_TYPE))
    if kind in (b"GroupQueryAttention", b"CachedAttentionInt8"):
        raise ValueError(f"it has {kind.decode()}")
    if kind != b"CachedAttention":
        return []
    inputs, outputs = [*values(node, _INPUT)], [*values(node, _OUTPUT)]
    return [inputs[_PAST_KEY], inputs[_PAST_VALUE], *outputs[1:3]]


def _in_bytes(value: bytes) -> bytes:
    """A graph's input or output, a vector of which becomes bytes: two codes each, and the levels."""

    def shape(message: bytes) -> bytes:
        *others, last = values(message, _DIMENSION)
        return b"".join(field(_DIMENSION, one) for one in (*others, _row(last)))

    def tensor(message: bytes) -> bytes:
        rest = [
            field(_SHAPE, shape(payload)) if number == _SHAPE else whole
            for number, payload, whole in fields(message)
            if number != _ELEMENT_TYPE
        ]
        return b"".join([integer_field(_ELEMENT_TYPE, _UINT8), *rest])

    return edited(value, _VALUE_TYPE, lambda kind: edited(kind, _TENSOR_TYPE, tensor))


def _row(dimension: bytes) -> bytes:
    """The last axis; one of a name stays."""
    sizes = [integer(whole) for number, _, whole in fields(dimension) if number == _SIZE]
    return integer_field(_SIZE, int4_row(sizes[0])) if sizes else dimension


def int4_row(head_dim: int) -> int:
    """Bytes of one head's keys, or values, of one position: two codes each, a scale and a middle."""
    return (head_dim + 1) // 2 + _LEVELS
