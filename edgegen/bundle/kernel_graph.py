"""Graphs rewritten to use edgegen's own operators, the kernels, in place of ONNX Runtime's."""

from collections.abc import Collection, Iterator, Mapping

from edgegen.bundle.kernel_graph_floats import with_float_kernels
from edgegen.bundle.protobuf import edited, field, fields, float_field, integer_field, integer_value, values

_GRAPH, _OPSET_IMPORT = 7, 8
_NODE, _INITIALIZER, _GRAPH_OUTPUT, _VALUE_NAME = 1, 5, 12, 1
_INPUT, _OUTPUT, _OP_TYPE, _ATTRIBUTE, _DOMAIN = 1, 2, 4, 5, 7
_ATTRIBUTE_NAME, _ATTRIBUTE_INTEGER = 1, 3
_TENSOR_TYPE, _TENSOR_NAME, _TENSOR_EXTERNAL_DATA = 2, 8, 13
_FLOAT, _UINT8, _BFLOAT16 = 1, 2, 16
_OPSET_DOMAIN, _OPSET_VERSION = 1, 2

_INTEGER_0 = integer_field(3, 0) + integer_field(20, 2)
_FLOAT_0 = float_field(2, 0.0) + integer_field(20, 1)
_TEXT_OF_ATTRIBUTE = bytes([4 << 3 | 2, len("PER_CHANNEL")])

_OF_ATTENTION = {
    b"num_heads": _INTEGER_0,
    b"kv_num_heads": _INTEGER_0,
    b"scale": _FLOAT_0,
    b"local_window_size": _INTEGER_0,
    b"softcap": _FLOAT_0,
    b"do_rotary": _INTEGER_0,
    b"rotary_interleaved": _INTEGER_0,
}
"""Attributes of attention, and what they are where they are left out."""

_ROUNDING = {b"k_quant_type", b"v_quant_type"}
_STORED = ("bits", "block_size")
"""Attributes that tell how codes are to be read."""
_KEPT = (b"K", b"N", b"bits", b"block_size", *_OF_ATTENTION)
"""Attributes that our operators have of those that they replace."""

EXACT = frozenset(
    b"Abs Add Cast Clip Concat Div Expand Gather GatherND Identity Max Mul Pad Range ReduceMax Relu Reshape Shape "
    b"Slice Split Sub Unsqueeze".split()
)
"""Stock operators that round each element once, or never: IEEE 754 leaves them no choice of bits."""


def with_kernels(graph: bytes) -> bytes:
    """``graph`` with our operators in place of those that they can compute.

    They are ``BlockMatMul`` for ``MatMulNBits``, ``BlockGather`` for ``GatherBlockQuantized``, ``CachedAttention`` (and
    ``CachedAttentionInt8``) for ``GroupQueryAttention``, and those of :func:`with_float_kernels`.

    Raises:
        ValueError: that is no graph.
    """
    body = next(values(graph, _GRAPH))
    tensors = {next(values(tensor, _TENSOR_NAME)): tensor for tensor in values(body, _INITIALIZER)}
    initializers = {name: integer_value(tensor, _TENSOR_TYPE) for name, tensor in tensors.items()}
    casts = {
        next(values(node, _OUTPUT)): next(values(node, _INPUT))
        for node in values(body, _NODE)
        if next(values(node, _OP_TYPE)) == b"Cast"
    }

    def node(message: bytes) -> bytes:
        match next(values(message, _OP_TYPE)):
            case b"MatMulNBits":
                return matmul(message)
            case b"GatherBlockQuantized":
                return gather(message)
            case b"GroupQueryAttention":
                return _attention(message, initializers.keys())
            case _:
                return message

    def readable(attributes: Mapping[str, int], codes: bytes, scales: bytes, zeros: bytes) -> bool:
        """Whether our kernels read numbers stored so."""
        return (
            attributes["bits"] in (4, 8)
            and attributes["block_size"] in (32, 64)
            and initializers.get(codes) == _UINT8
            and initializers.get(scales) in (_FLOAT, _BFLOAT16)
            and (not zeros or initializers.get(zeros) == _UINT8)
        )

    def matmul(message: bytes) -> bytes:
        x, codes, scales, zeros, order, bias = [*values(message, _INPUT), b"", b"", b"", b""][:6]
        scales = casts.get(scales, scales)  # the kernels read bfloat16 where it lies
        attributes = dict(_integers(message))
        fits = readable(attributes, codes, scales, zeros) and attributes["accuracy_level"] == 4
        if not fits or order or (bias and initializers.get(bias) != _FLOAT):
            return message
        return _replaced(message, b"BlockMatMul", [x, codes, scales, zeros, bias])

    def gather(message: bytes) -> bytes:
        codes, ids, scales, zeros = [*values(message, _INPUT), b""][:4]
        scales = casts.get(scales, scales)
        attributes = {"bits": 4, "block_size": 128, "gather_axis": 0, "quantize_axis": 1} | dict(_integers(message))
        axes = (attributes["gather_axis"], attributes["quantize_axis"])
        if not readable(attributes, codes, scales, zeros) or axes != (0, 1):
            return message
        return _replaced(message, b"BlockGather", [shared.get(codes, codes), ids, scales, zeros])

    shared = _shared_tables(body, tensors)
    changed = edited(
        graph,
        _GRAPH,
        lambda content: _without_unused(
            _without_unused_casts(with_float_kernels(edited(content, _NODE, node))), shared.keys()
        ),
    )
    return changed + field(_OPSET_IMPORT, field(_OPSET_DOMAIN, b"edgegen") + integer_field(_OPSET_VERSION, 1))


def inexact_operators(graph: bytes) -> frozenset[bytes]:
    """Types of ``graph``'s operators whose bits may depend on chunks or on the processor: neither ours nor exact."""
    nodes = values(next(values(graph, _GRAPH)), _NODE)
    stock = {next(values(node, _OP_TYPE)) for node in nodes if next(values(node, _DOMAIN), b"") != b"edgegen"}
    return frozenset(stock - EXACT)


def _shared_tables(body: bytes, tensors: Mapping[bytes, bytes]) -> dict[bytes, bytes]:
    """Tables whose rows are gathered, and the matrices of the same bytes, which would be mapped a second time."""

    def place(codes: bytes) -> tuple[bytes, ...]:
        return tuple(values(tensors.get(codes, b""), _TENSOR_EXTERNAL_DATA))

    nodes = {kind: list[bytes]() for kind in (b"GatherBlockQuantized", b"MatMulNBits")}
    for message in values(body, _NODE):
        if (kind := next(values(message, _OP_TYPE))) in nodes:
            nodes[kind].append(message)
    gathers, products = nodes.values()
    tables = {at: (codes, gather) for gather in gathers if (at := place(codes := next(values(gather, _INPUT))))}
    shared = dict[bytes, bytes]()
    for product in products if tables else ():
        matrix = [*values(product, _INPUT)][1]
        if found := tables.get(place(matrix)):
            table, gather = found
            stored = [{name: dict(_integers(one)).get(name) for name in _STORED} for one in (gather, product)]
            if stored[0] == stored[1]:
                shared[table] = matrix
    return shared


def _without_unused_casts(body: bytes) -> bytes:
    """A graph without casts that nothing reads any more: ONNX Runtime would compute them when it opens the graph."""
    used = {name for message in values(body, _NODE) for name in values(message, _INPUT)}
    used.update(next(values(output, _VALUE_NAME)) for output in values(body, _GRAPH_OUTPUT))

    def kept(number: int, payload: bytes) -> bool:
        return number != _NODE or next(values(payload, _OP_TYPE)) != b"Cast" or next(values(payload, _OUTPUT)) in used

    return b"".join(whole for number, payload, whole in fields(body) if kept(number, payload))


def _without_unused(body: bytes, names: Collection[bytes]) -> bytes:
    """A graph without those initializers of ``names`` that no node reads any more."""
    if not names:
        return body
    used = {name for message in values(body, _NODE) for name in values(message, _INPUT)}
    unused = {*names} - used
    return b"".join(
        whole
        for number, payload, whole in fields(body)
        if number != _INITIALIZER or next(values(payload, _TENSOR_NAME)) not in unused
    )


def _attention(message: bytes, initializers: Collection[bytes]) -> bytes:
    inputs = [*values(message, _INPUT)]
    scales = inputs[12:14]
    attributes = {next(values(one, _ATTRIBUTE_NAME)): one for one in values(message, _ATTRIBUTE)}
    by_channel = all(_TEXT_OF_ATTRIBUTE + b"PER_CHANNEL" in attributes.get(name, b"") for name in _ROUNDING)
    if attributes.keys() - _OF_ATTENTION - _ROUNDING - {b"kv_cache_bit_width"} or b"scale" not in attributes:
        return message
    if scales and (not by_channel or len(scales) < 2 or set(scales) - {*initializers}):
        return message
    defaults = [
        field(_ATTRIBUTE, field(_ATTRIBUTE_NAME, name) + default)
        for name, default in _OF_ATTENTION.items()
        if name not in attributes
    ]
    return _replaced(message, b"CachedAttentionInt8" if scales else b"CachedAttention", inputs, *defaults)


def _replaced(node: bytes, op_type: bytes, inputs: list[bytes], *defaults: bytes) -> bytes:
    """``node`` as one of our operators, with attributes that it leaves to its own defaults."""
    while not inputs[-1]:
        inputs.pop()
    parts = [field(_INPUT, name) for name in inputs]
    parts += [field(_OUTPUT, name) for name in values(node, _OUTPUT)]
    parts += [field(_OP_TYPE, op_type), field(_DOMAIN, b"edgegen")]
    parts += [field(_ATTRIBUTE, one) for one in values(node, _ATTRIBUTE) if next(values(one, _ATTRIBUTE_NAME)) in _KEPT]
    return b"".join((*parts, *defaults))


def _integers(node: bytes) -> Iterator[tuple[str, int]]:
    """The attributes of a node that are integers."""
    for attribute in values(node, _ATTRIBUTE):
        name = next(values(attribute, _ATTRIBUTE_NAME)).decode()
        if (value := integer_value(attribute, _ATTRIBUTE_INTEGER)) is not None:
            yield name, value
