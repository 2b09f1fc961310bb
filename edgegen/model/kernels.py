"""Kernels: edgegen's own operator for block-quantized matrices, and graphs rewritten to use it in place of stock ones.

The library is compiled from ``kernels/``. Without it every graph runs on ONNX Runtime's operators.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from edgegen.bundle.protobuf import edited, field, integer_field, integer_value, values

_SUFFIX = {"win32": ".dll", "darwin": ".dylib"}.get(sys.platform, ".so")
_LIBRARY = Path(__file__).parent / f"edgegen_kernels{_SUFFIX}"

_GRAPH, _OPSET_IMPORT = 7, 8
_NODE, _INITIALIZER = 1, 5
_INPUT, _OUTPUT, _OP_TYPE, _ATTRIBUTE, _DOMAIN = 1, 2, 4, 5, 7
_ATTRIBUTE_NAME, _ATTRIBUTE_INTEGER = 1, 3
_TENSOR_NAME = 8
_OPSET_DOMAIN, _OPSET_VERSION = 1, 2

_KEPT = (b"K", b"N", b"bits", b"block_size")
"""Attributes that both operators have."""


def kernel_library() -> Path | None:
    """The compiled library; None where there is none."""
    return _LIBRARY if _LIBRARY.is_file() else None


def with_kernels(graph: bytes) -> bytes:
    """``graph`` with ``edgegen.BlockMatMul`` in place of every ``MatMulNBits`` that it can compute.

    Raises:
        ValueError: that is no graph.
    """
    body = next(values(graph, _GRAPH))
    initializers = {next(values(tensor, _TENSOR_NAME)) for tensor in values(body, _INITIALIZER)}
    casts = {
        next(values(node, _OUTPUT)): next(values(node, _INPUT))
        for node in values(body, _NODE)
        if next(values(node, _OP_TYPE)) == b"Cast"
    }

    def node(message: bytes) -> bytes:
        if next(values(message, _OP_TYPE)) != b"MatMulNBits":
            return message
        x, codes, scales, zeros, order, bias = [*values(message, _INPUT), b"", b"", b"", b""][:6]
        scales = casts.get(scales, scales)  # the kernels read bfloat16 where it lies
        attributes = dict(_integers(message))
        fits = (
            attributes["bits"] in (4, 8) and attributes["block_size"] in (32, 64) and attributes["accuracy_level"] == 4
        )
        if not fits or order or {codes, scales, zeros, bias} - {b""} - initializers:
            return message
        inputs = [x, codes, scales, zeros, bias]
        while not inputs[-1]:
            inputs.pop()
        parts = [field(_INPUT, name) for name in inputs]
        parts += [field(_OUTPUT, name) for name in values(message, _OUTPUT)]
        parts += [field(_OP_TYPE, b"BlockMatMul"), field(_DOMAIN, b"edgegen")]
        parts += [
            field(_ATTRIBUTE, one) for one in values(message, _ATTRIBUTE) if next(values(one, _ATTRIBUTE_NAME)) in _KEPT
        ]
        return b"".join(parts)

    changed = edited(graph, _GRAPH, lambda content: edited(content, _NODE, node))
    return changed + field(_OPSET_IMPORT, field(_OPSET_DOMAIN, b"edgegen") + integer_field(_OPSET_VERSION, 1))


def _integers(node: bytes) -> Iterator[tuple[str, int]]:
    """The attributes of a node that are integers."""
    for attribute in values(node, _ATTRIBUTE):
        name = next(values(attribute, _ATTRIBUTE_NAME)).decode()
        if (value := integer_value(attribute, _ATTRIBUTE_INTEGER)) is not None:
            yield name, value
