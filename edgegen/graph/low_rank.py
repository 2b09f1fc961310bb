"""Low-rank branches put into a graph: where an adapter changes a matrix, ``y = W x`` becomes ``y = W x + B (A x)``.

The matrix stays what and where it is; the factors become constants of the graph, which is made when it is loaded.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgegen.graph.node import GraphNode
from edgegen.graph.protobuf import edited, field, fields, float_tensor, packed_integers, values

_GRAPH = 7
_NODE, _INITIALIZER = 1, 5
_INPUT, _OUTPUT, _NAME, _OP_TYPE = 1, 2, 3, 4
_TENSOR_DIMS, _TENSOR_NAME = 1, 8

_PRODUCTS = frozenset({b"MatMulNBits", b"FusedMatMul"})
"""Operators of linear layers; the matrix is their second input."""

MATRIX = ".weight"
"""End of the names of matrices in the graphs."""


class Factors(NamedTuple):
    """Factors of what is added to a product with a matrix [n, k]: ``a`` [k, r] and then ``b`` [r, n], both float32."""

    a: NDArray[np.float32]
    b: NDArray[np.float32]


LowRank = Mapping[str, Factors]
"""By the name of the matrix in the graph, without ``.weight``: ``layers.0.attn.q+k+v``."""


def factors_of(arrays: Mapping[str, NDArray[np.float32]]) -> LowRank:
    """The factors in a file of arrays, where those of a matrix are called ``NAME.a`` and ``NAME.b``.

    Raises:
        ValueError: they are not.
    """
    names = [name.removesuffix(".a") for name in arrays if name.endswith(".a")]
    if not names or set(arrays) != {f"{name}.{part}" for name in names for part in "ab"}:
        raise ValueError("its arrays are not pairs of factors")
    found = {name: Factors(arrays[f"{name}.a"], arrays[f"{name}.b"]) for name in names}
    for name, (a, b) in found.items():
        if a.ndim != 2 or b.ndim != 2 or a.shape[1] != b.shape[0] or 0 in a.shape + b.shape:
            raise ValueError(f"the factors of {name} have shapes {list(a.shape)} and {list(b.shape)}")
    return found


def linear_matrices(graph: bytes) -> frozenset[str]:
    """The names of ``graph``'s matrices that may have a branch, as :data:`LowRank` has them.

    Raises:
        ValueError: that is no graph.
    """
    body = next(values(graph, _GRAPH))
    nodes = [GraphNode.parsed(message) for message in values(body, _NODE)]
    stored = frozenset(next(values(tensor, _TENSOR_NAME)) for tensor in values(body, _INITIALIZER))
    return frozenset(name for node in nodes if (name := _matrix(node, _casts(nodes))) and _stored(name) in stored)


def with_low_rank(graph: bytes, adapter: LowRank) -> bytes:
    """``graph`` with a branch beside each of the matrices that ``adapter`` has factors for.

    Raises:
        ValueError: that is no graph, or it has no such matrix, or one of another shape.
    """
    found = set[str]()
    result = edited(graph, _GRAPH, lambda body: b"".join(_with_branches(body, adapter, found)))
    if missing := sorted(adapter.keys() - found):
        raise ValueError(f"the graph does not multiply by {missing[0]}, which the adapter changes")
    return result


def _with_branches(body: bytes, adapter: LowRank, adapted: set[str]) -> Iterator[bytes]:
    parts = [*fields(body)]
    casts = _casts([GraphNode.parsed(payload) for number, payload, _ in parts if number == _NODE])
    shapes = dict(_shape(payload) for number, payload, _ in parts if number == _INITIALIZER)
    for number, payload, whole in parts:
        node = GraphNode.parsed(payload) if number == _NODE else None
        name = _matrix(node, casts) if node else None
        factors = adapter.get(name) if name else None
        if node is None or name is None or factors is None:
            yield whole
            continue
        if (size := _size(node, shapes.get(_stored(name), ()))) != (len(factors.a), factors.b.shape[1]):
            raise ValueError(f"{name} takes and gives {size} values, and the adapter is for another matrix")
        if name not in adapted:
            yield field(_INITIALIZER, float_tensor(f"{name}.a", factors.a))
            yield field(_INITIALIZER, float_tensor(f"{name}.b", factors.b))
        adapted.add(name)
        y = node.outputs[0]
        base, low, update = (y + end for end in (b"/base", b"/low", b"/update"))
        yield field(_NODE, edited(payload, _OUTPUT, lambda output, y=y, base=base: base if output == y else output))
        yield field(_NODE, _node(b"MatMul", [node.inputs[0], f"{name}.a".encode()], low))
        yield field(_NODE, _node(b"MatMul", [low, f"{name}.b".encode()], update))
        yield field(_NODE, _node(b"Add", [base, update], y, y + b"/sum"))


def _casts(nodes: list[GraphNode]) -> dict[bytes, bytes]:
    """Return the input of each cast, by its output."""
    return {node.outputs[0]: node.inputs[0] for node in nodes if node.op_type == b"Cast"}


def _matrix(node: GraphNode, casts: Mapping[bytes, bytes]) -> str | None:
    """The name of the matrix that ``node`` multiplies by; None if it does something else."""
    if node.op_type not in _PRODUCTS or len(node.inputs) < 2:
        return None
    name = casts.get(node.inputs[1], node.inputs[1]).decode()
    return name.removesuffix(MATRIX) if name.endswith(MATRIX) else None


def _size(node: GraphNode, shape: tuple[int, ...]) -> tuple[int | None, int | None]:
    """How many values a product reads and produces; ``shape``: of its matrix, where that is floats."""
    if node.op_type == b"MatMulNBits":
        return node.integer(b"K"), node.integer(b"N")
    rows, columns = shape if len(shape) == 2 else (None, None)
    return columns, rows


def _stored(name: str) -> bytes:
    return (name + MATRIX).encode()


def _shape(tensor: bytes) -> tuple[bytes, tuple[int, ...]]:
    """Name and shape of a ``TensorProto``."""
    name, shape = b"", list[int]()
    for number, payload, whole in fields(tensor):
        if number == _TENSOR_NAME:
            name = payload
        elif number == _TENSOR_DIMS:
            shape += packed_integers(payload or whole[1:])
    return name, tuple(shape)


def _node(op_type: bytes, inputs: list[bytes], output: bytes, name: bytes = b"") -> bytes:
    taken = b"".join(field(_INPUT, name) for name in inputs)
    return taken + field(_OUTPUT, output) + field(_NAME, name or output) + field(_OP_TYPE, op_type)
