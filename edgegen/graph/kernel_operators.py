"""Graphs rewritten to use edgegen's own operators, the kernels, in place of ONNX Runtime's."""

import struct
from collections.abc import Collection, Iterable, Mapping, Sequence, Set
from typing import Literal, NamedTuple, Self

from edgegen.graph.experts import fused_experts
from edgegen.graph.functions import DOMAIN, FUNCTIONS, operator_of
from edgegen.graph.fusion import with_fused_layers
from edgegen.graph.node import GraphNode
from edgegen.graph.norms_and_activations import with_float_kernels
from edgegen.graph.pending_tokens import with_pending_tokens
from edgegen.graph.protobuf import (
    edited,
    field,
    fields,
    float_field,
    integer,
    integer_field,
    packed_integers,
    values,
)
from edgegen.graph.query_key_norms import with_query_key_norms

_GRAPH, _OPSET_IMPORT, _FUNCTION = 7, 8, 25
_NODE, _INITIALIZER, _RESULT = 1, 5, 12
_ATTRIBUTE_NAME, _VALUE_NAME = 1, 1
_TENSOR_DIMS, _TENSOR_TYPE, _TENSOR_NAME, _TENSOR_RAW, _TENSOR_EXTERNAL_DATA = 1, 2, 8, 9, 13
_FLOAT, _UINT8, _INT64, _FLOAT16, _BFLOAT16 = 1, 2, 7, 10, 16
_MOST_RAW = 64
"""Bytes of initializers that are read."""
_OPSET_DOMAIN, _OPSET_VERSION, _FUNCTION_NAME = 1, 2, 1

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
_STORED = (b"bits", b"block_size")
"""Attributes that tell how codes are to be read."""
_KEPT = (b"K", b"N", b"bits", b"block_size", *_OF_ATTENTION)
"""Attributes that our operators have of those that they replace."""

EXACT = frozenset(
    b"Abs Add Cast Clip Concat Div Expand Gather GatherND Identity Less Max Mul Pad Range ReduceMax Relu Reshape Shape "
    b"Slice Split Sqrt Sub Sum Unsqueeze Where".split()
)
"""Stock operators that round each element once, or never: IEEE 754 leaves them no choice of bits. ``Sum`` adds its
inputs one after the other."""


SummingOrder = Literal["fixed", "rows", "batch"]
"""In which order a graph's operators add: always the same; one that depends on how many tokens of a sequence are
computed at once; or one that depends on the other rows of the batch too."""

NARROW = (2, 3)
"""Bits of codes that stock operators do not read as they are stored here, which is for our kernels."""
_NARROW_BLOCK = 32

_ALWAYS_THE_SAME = 2
"""Most experts per token whose order changes nothing: a sum of two numbers has the same bits in either order."""


_STOCK_ATTENTION = field(4, b"GroupQueryAttention")
"""The type of a node, as a graph has it."""

_Field = tuple[int, bytes, bytes]
"""One of a message, as :func:`~edgegen.graph.protobuf.fields` gives them."""


class _Tensor(NamedTuple):
    """An initializer: its element type, where its bytes are in another file, empty where they are in the graph, its
    shape, and what it has if that is a few int64."""

    element_type: int | None
    place: tuple[bytes, ...]
    shape: tuple[int, ...]
    integers: tuple[int, ...] = ()

    @classmethod
    def parsed(cls, message: bytes) -> tuple[bytes, Self]:
        """Its name, and the tensor."""
        name, element_type, place, shape, raw = b"", None, list[bytes](), list[int](), b""
        for number, payload, whole in fields(message):
            if number == _TENSOR_NAME:
                name = payload
            elif number == _TENSOR_TYPE:
                element_type = integer(whole)
            elif number == _TENSOR_EXTERNAL_DATA:
                place.append(payload)
            elif number == _TENSOR_RAW:
                raw = payload
            elif number == _TENSOR_DIMS:
                shape += packed_integers(payload) if payload else [integer(whole)]
        few = element_type == _INT64 and len(raw) <= _MOST_RAW and len(raw) % 8 == 0
        integers = struct.unpack(f"<{len(raw) // 8}q", raw) if few else ()
        return name, cls(element_type, tuple(place), tuple(shape), integers)


def with_kernels(graph: bytes, states: Set[str] = frozenset(), *, fuse: bool = True) -> bytes:
    """``graph`` with our operators in place of those that they can compute, and of its functions.

    The others are ``BlockMatMul`` for ``MatMulNBits``, ``BlockGather`` for ``GatherBlockQuantized``, ``BlockExperts``
    for ``QMoE``, ``CachedAttention`` (and ``CachedAttentionInt8``) for ``GroupQueryAttention``, those of
    :func:`with_float_kernels`, and ``FusedLayers`` for several that follow one another
    (:func:`~edgegen.graph.fusion.with_fused_layers`), unless these are not to ``fuse``. ``states``: inputs that are
    fixed states, which are to have pending tokens (:mod:`edgegen.graph.pending_tokens`).

    Raises:
        ValueError: that is no graph.
    """
    fixed = {name.encode() for name in states}
    body, called = _body_with_kernels(next(values(graph, _GRAPH)), fixed, fuse=fuse)
    ours = field(_OPSET_DOMAIN, DOMAIN.encode()) + integer_field(_OPSET_VERSION, 1)
    parts = list[bytes]()
    for number, payload, whole in fields(graph):
        if number == _GRAPH:
            parts.append(field(_GRAPH, body))
        elif (number, payload) != (_OPSET_IMPORT, ours) and (
            number != _FUNCTION or next(values(payload, _FUNCTION_NAME)) in called
        ):
            parts.append(whole)
    return b"".join([*parts, field(_OPSET_IMPORT, ours)])


def with_fusion(graph: bytes) -> bytes:
    """``graph``, which :func:`with_kernels` gave without fusing, with ``FusedLayers``.

    Raises:
        ValueError: that is no graph.
    """

    def fused(body: bytes) -> bytes:
        parts = [*fields(body)]
        nodes = [GraphNode.parsed(payload) for number, payload, _ in parts if number == _NODE]
        tensors = dict(_Tensor.parsed(payload) for number, payload, _ in parts if number == _INITIALIZER)
        return _written(parts, nodes, _fused(nodes, tensors, _results(parts)))

    return edited(graph, _GRAPH, fused)


def _body_with_kernels(body: bytes, states: Set[bytes], *, fuse: bool) -> tuple[bytes, Set[bytes]]:
    """``with_kernels`` of a ``GraphProto``, and the functions that it still calls. Each message is read once: loading a
    model waits for this."""
    parts = [*fields(body)]
    nodes = [GraphNode.parsed(payload) for number, payload, _ in parts if number == _NODE]
    tensors = dict(_Tensor.parsed(payload) for number, payload, _ in parts if number == _INITIALIZER)
    results = _results(parts)

    rewriter = _Rewriter(tensors, nodes)
    floats = {name for name, tensor in tensors.items() if tensor.element_type == _FLOAT}
    rewritten = with_float_kernels([rewriter.node(node) for node in nodes], floats, results)
    rewritten = _fused(rewritten, tensors, results) if fuse else rewritten
    shapes = {name: tensor.shape for name, tensor in tensors.items()}
    rewritten, added = with_pending_tokens(rewritten, states, shapes, results)
    rewritten = _without_unused_casts(rewritten, results)
    read = {name for node in rewritten if node for name in node.inputs} if rewriter.shared else set[bytes]()
    unused = rewriter.shared.keys() - read

    names = iter(tensors)
    kept = [part for part in parts if part[0] != _INITIALIZER or next(names) not in unused]
    return _written(kept, nodes, rewritten) + added, rewriter.called


def _fused(
    nodes: Sequence[GraphNode | None], tensors: Mapping[bytes, _Tensor], results: Sequence[bytes]
) -> list[GraphNode | None]:
    weights = {name: tensor.shape[0] for name, tensor in tensors.items() if len(tensor.shape) == 1}
    integers = {name: tensor.integers for name, tensor in tensors.items() if tensor.integers}
    return with_fused_layers(with_query_key_norms(nodes, weights, integers, results), results)


def _results(parts: Iterable[_Field]) -> list[bytes]:
    """The names of a graph's outputs."""
    return [next(values(payload, _VALUE_NAME)) for number, payload, _ in parts if number == _RESULT]


def _written(parts: Iterable[_Field], nodes: Sequence[GraphNode], rewritten: Sequence[GraphNode | None]) -> bytes:
    """A ``GraphProto`` of ``parts``, with these nodes in place of its own ``nodes``; None is left out."""
    replacements = iter(zip(nodes, rewritten, strict=True))
    written = list[bytes]()
    for number, _, whole in parts:
        if number == _NODE:
            old, new = next(replacements)
            written.append(whole if new is old else field(_NODE, new.message) if new else b"")
        else:
            written.append(whole)
    return b"".join(written)


class _Rewriter:
    """Replaces a graph's functions, quantized matrices, embeddings and attention by our operators.

    Attributes:
        called: functions that are still called.
    """

    def __init__(self, tensors: Mapping[bytes, _Tensor], nodes: Sequence[GraphNode]) -> None:
        self._tensors = tensors
        self._types = {name: tensor.element_type for name, tensor in tensors.items()}
        self._casts = {node.outputs[0]: node.inputs[0] for node in nodes if node.op_type == b"Cast"}
        self.shared = _shared_tables(nodes, tensors)
        self.called = set[bytes]()

    def node(self, node: GraphNode) -> GraphNode:
        """``node`` as one of our operators, or as it is."""
        if node.domain == DOMAIN.encode():
            return self._function(node)
        match node.op_type:
            case b"MatMulNBits":
                return self._matmul(node)
            case b"GatherBlockQuantized":
                return self._gather(node)
            case b"QMoE":
                return self._experts(node)
            case b"GroupQueryAttention":
                return _attention(node, self._tensors.keys())
            case _:
                return node

    def _function(self, node: GraphNode) -> GraphNode:
        """``node``, which calls a function, as the operator of its name; as it is where weights are no initializers."""
        operator, inputs = operator_of(node.op_type), list(node.inputs)
        if operator == b"BlockMatMulPerHead":
            inputs[1:] = [self._casts.get(name, name) for name in inputs[1:]]  # the kernel reads bfloat16
        weights = {inputs[at] for at in FUNCTIONS.get(operator, ()) if at < len(inputs)} - {b""}
        if operator not in FUNCTIONS or weights - self._tensors.keys():
            self.called.add(node.op_type)
            return node
        return node.replaced(operator, inputs, node.outputs, node.attributes)

    def _matmul(self, node: GraphNode) -> GraphNode:
        x, codes, scales, zeros, order, bias = [*node.inputs, b"", b"", b""][:6]
        scales = self._casts.get(scales, scales)  # the kernels read 16 bits where they lie
        stored = (node.integer(b"bits"), node.integer(b"block_size"))
        fits = self._readable(stored, codes, scales, zeros) and node.integer(b"accuracy_level") == 4
        if not fits or order or (bias and self._types.get(bias) != _FLOAT):
            return node
        return _replaced(node, b"BlockMatMul", [x, codes, scales, zeros, bias])

    def _gather(self, node: GraphNode) -> GraphNode:
        codes, ids, scales, zeros = [*node.inputs, b""][:4]
        scales = self._casts.get(scales, scales)
        stored = (node.integer(b"bits", 4), node.integer(b"block_size", 128))
        axes = (node.integer(b"gather_axis", 0), node.integer(b"quantize_axis", 1))
        if not self._readable(stored, codes, scales, zeros) or axes != (0, 1):
            return node
        return _replaced(node, b"BlockGather", [self.shared.get(codes, codes), ids, scales, zeros])

    def _experts(self, node: GraphNode) -> GraphNode:
        inputs = [self._casts.get(name, name) if at in (3, 6) else name for at, name in enumerate(node.inputs)]
        stored = (node.integer(b"expert_weight_bits", 4), node.integer(b"block_size"))
        names = [*inputs, b"", b""]
        if stored[0] in NARROW or not all(self._readable(stored, names[at], names[at + 1], b"") for at in (2, 5)):
            return node
        shapes = {name: self._tensors[name].shape for name in inputs if name in self._tensors}
        return fused_experts(node, inputs, shapes) or node

    def _readable(self, stored: tuple[int | None, int | None], codes: bytes, scales: bytes, zeros: bytes) -> bool:
        """Whether our kernels read numbers stored in these bits and blocks."""
        bits, block = stored
        types = self._types
        return (
            ((bits in (4, 8) and block in (32, 64)) or (bits in NARROW and block == _NARROW_BLOCK))
            and types.get(codes) == _UINT8
            and types.get(scales) in (_FLOAT, _FLOAT16, _BFLOAT16)
            and (not zeros or types.get(zeros) == _UINT8)
        )


def needs_kernels(graph: bytes) -> bool:
    """Whether ``graph``, which is not rewritten, has matrices that only our operators can read."""
    return any(
        node.integer(b"bits", 4) in NARROW
        for node in _nodes(graph)
        if node.op_type in (b"MatMulNBits", b"GatherBlockQuantized")
    )


def attends_batches(graph: bytes) -> bool:
    """Whether ``graph`` accepts several tokens of several rows: ONNX Runtime's attention refuses both at once."""
    return _STOCK_ATTENTION not in graph


def inexact_operators(graph: bytes) -> frozenset[bytes]:
    """Types of ``graph``'s operators whose bits may depend on chunks or on the processor: neither ours nor exact."""
    return _inexact(_nodes(graph))


def summing_order(graph: bytes, *, kernels: bool, vnni: bool) -> SummingOrder:
    """In which order ``graph``'s operators add; ``kernels``: whether it was rewritten to use ours; ``vnni``: whether
    the processor has it."""
    nodes = _nodes(graph)
    if any(_depends_on_batch(node, vnni) for node in nodes):
        return "batch"
    return "fixed" if kernels and not _inexact(nodes) else "rows"


def _inexact(nodes: Iterable[GraphNode]) -> frozenset[bytes]:
    return frozenset(node.op_type for node in nodes if node.domain != b"edgegen") - EXACT


def _depends_on_batch(node: GraphNode, vnni: bool) -> bool:
    """ONNX Runtime adds the results of a token's experts as its threads get there; without VNNI it multiplies up to
    four rows by matrices of 4 bits in another way than more."""
    match node.op_type:
        case b"MatMulNBits":
            return not vnni and node.integer(b"bits", 4) == 4
        case b"QMoE":
            four = node.integer(b"expert_weight_bits", 4) == 4
            return (four and not vnni) or (node.integer(b"k", 1) or 1) > _ALWAYS_THE_SAME
        case b"MoE":
            return (node.integer(b"k", 1) or 1) > _ALWAYS_THE_SAME
        case _:
            return False


def _nodes(graph: bytes) -> list[GraphNode]:
    return [GraphNode.parsed(message) for message in values(next(values(graph, _GRAPH)), _NODE)]


def _shared_tables(nodes: Iterable[GraphNode], tensors: Mapping[bytes, _Tensor]) -> dict[bytes, bytes]:
    """Tables whose rows are gathered, and the matrices of the same bytes, which would be mapped a second time."""

    def place(codes: bytes) -> tuple[bytes, ...]:
        tensor = tensors.get(codes)
        return tensor.place if tensor else ()

    products, gathers = list[GraphNode](), list[GraphNode]()
    for node in nodes:
        if node.op_type == b"MatMulNBits":
            products.append(node)
        elif node.op_type == b"GatherBlockQuantized":
            gathers.append(node)
    tables = {at: gather for gather in gathers if (at := place(gather.inputs[0]))}
    shared = dict[bytes, bytes]()
    for product in products if tables else ():
        matrix = product.inputs[1]
        gather = tables.get(place(matrix))
        if gather and all(gather.integer(name) == product.integer(name) for name in _STORED):
            shared[gather.inputs[0]] = matrix
    return shared


def _without_unused_casts(nodes: Sequence[GraphNode | None], results: Iterable[bytes]) -> list[GraphNode | None]:
    """Nodes without casts that nothing reads any more: ONNX Runtime would compute them when it opens the graph."""
    used = {name for node in nodes if node for name in node.inputs}.union(results)
    return [None if node and node.op_type == b"Cast" and node.outputs[0] not in used else node for node in nodes]


def _attention(node: GraphNode, initializers: Collection[bytes]) -> GraphNode:
    scales, attributes = node.inputs[12:14], node.attributes
    by_channel = all(_TEXT_OF_ATTRIBUTE + b"PER_CHANNEL" in attributes.get(name, b"") for name in _ROUNDING)
    if attributes.keys() - _OF_ATTENTION - _ROUNDING - {b"kv_cache_bit_width"} or b"scale" not in attributes:
        return node
    if scales and (not by_channel or len(scales) < 2 or set(scales) - {*initializers}):
        return node
    defaults = {
        name: field(_ATTRIBUTE_NAME, name) + default
        for name, default in _OF_ATTENTION.items()
        if name not in attributes
    }
    return _replaced(node, b"CachedAttentionInt8" if scales else b"CachedAttention", node.inputs, defaults)


def _replaced(
    node: GraphNode, op_type: bytes, inputs: Sequence[bytes], defaults: Mapping[bytes, bytes] | None = None
) -> GraphNode:
    """``node`` as one of our operators, with attributes that it leaves to its own defaults."""
    kept = {name: attribute for name, attribute in node.attributes.items() if name in _KEPT}
    return node.replaced(op_type, inputs, node.outputs, kept | dict(defaults or {}))
