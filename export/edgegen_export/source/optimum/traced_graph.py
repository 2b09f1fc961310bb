"""TracedGraph: a decoder graph as optimum's exporter writes it, with its matrices, token embedding and head found.

One graph that reads any past, none included: ``input_ids``, ``attention_mask``, perhaps ``position_ids`` and
``past_key_values.{i}.key|value`` in, ``logits`` of every position and ``present.{i}.key|value`` out. What its nodes
compute is looked at in three points only: which of them multiply by a matrix, which look up token embeddings, and
which is the head.
"""

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, numpy_helper

from edgegen.bundle.manifest import CacheClass, KVLayer, KVSpec
from edgegen.errors import UnsupportedModelError, refuse_any
from edgegen_export.tensors.lazy import LazyTensor

IDS, MASK, POSITIONS, LOGITS = "input_ids", "attention_mask", "position_ids", "logits"
ALL_LOGITS = "logits of all"
"""The name of the logits in ``nodes``; a graph that is built of them may return fewer positions."""

FULL = "full"
_PAST = re.compile(r"past_key_values\.(\d+)\.(key|value)")
_NARROWEST = 16
"""Matrices with fewer columns than the smallest block are left as they are."""
_INLINE_BYTES = 128
"""Arrays up to this size stay in the graph: shapes, axes, scalars."""
_RESHAPING = frozenset({"Reshape", "Cast", "Unsqueeze", "Squeeze", "Flatten", "Identity"})
_ELEMENTWISE = frozenset({"Add", "Sub", "Mul", "Div", "Tanh", "Cast", "Identity"})


@dataclass(frozen=True, slots=True, eq=False)
class TracedGraph:
    """A traced decoder.

    Attributes:
        nodes: in an order in which they can run, constants left out.
        arrays: values of initializers and constants, by name.
        matrices: by the name of an array: the module (``X`` of ``X.weight`` in ``tensors``) whose rows it is, as
            [out, in] for a linear layer, as it is for an embedding. Equal ones, a tied head say, are one module.
        vectors: by the name of any other large float32 array: its name in ``tensors``.
        tensors: all of these, to be stored.
        linear, embeddings: positions in ``nodes`` of those that use a matrix.
        head: position of the node that multiplies hidden states [b, t, d] by the head, where it is plain which.
    """

    nodes: tuple[NodeProto, ...]
    opset: int
    kv: KVSpec
    vocab_size: int
    arrays: Mapping[str, NDArray[np.generic]] = field(repr=False)
    matrices: Mapping[str, str]
    vectors: Mapping[str, str]
    tensors: Mapping[str, LazyTensor]
    linear: frozenset[int]
    embeddings: frozenset[int]
    head: int | None

    @classmethod
    def read(cls, path: Path) -> "TracedGraph":
        """Read a graph and its weights, which stay in memory.

        Raises:
            UnsupportedModelError: it is not a decoder as described above; everything found is listed.
        """
        model = cast(ModelProto, cast(Any, onnx).load(str(path)))
        graph = model.graph
        stored = {tensor.name for tensor in graph.initializer}
        problems = [
            f"its node {node.name} is a {node.op_type} with graphs of its own"
            for node in graph.node
            if any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute)
        ]
        outputs = {value.name: value for value in graph.output}
        kv = _kv_spec({x.name: x for x in graph.input if x.name not in stored}, outputs, problems)
        vocabulary = _shape(outputs[LOGITS])[-1:] if LOGITS in outputs else []
        if not vocabulary or not isinstance(vocabulary[0], int):
            problems.append("it has no logits over a vocabulary of known size")
        refuse_any(problems, UnsupportedModelError, "the graph that optimum traced cannot be used: ")

        arrays = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
        nodes: list[NodeProto] = []
        first: dict[str, str] = {}  # the tracer stores equal arrays once, and gives the others as its Identity
        for node in graph.node:
            node.input[:] = [first.get(name, name) for name in node.input]
            node.output[:] = [ALL_LOGITS if name == LOGITS else name for name in node.output]
            if node.op_type == "Constant" and node.attribute[0].name == "value":
                arrays[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
            elif node.op_type == "Identity" and node.input[0] in arrays:
                first[node.output[0]] = node.input[0]
            else:
                nodes.append(node)
        weights = _Weights(arrays)
        ids = _ids(nodes)
        linear, embeddings = set[int](), set[int]()
        for position, node in enumerate(nodes):
            if _is_linear(node, arrays):
                if weights.add_matrix(node.input[1], transposed=not _attribute(node, "transB", 0)):
                    linear.add(position)
            elif _is_embedding(node, arrays, ids) and weights.add_matrix(node.input[0], transposed=False):
                embeddings.add(position)
        used = {name for at, node in enumerate(nodes) for name in _other_inputs(node, at in linear, at in embeddings)}
        weights.add_vectors(name for name in arrays if name in used)
        return cls(
            nodes=tuple(nodes),
            opset=next(opset.version for opset in model.opset_import if opset.domain in ("", "ai.onnx")),
            kv=kv,
            vocab_size=int(vocabulary[0]),
            arrays=arrays,
            matrices=weights.matrices,
            vectors=weights.vectors,
            tensors=weights.tensors,
            linear=frozenset(linear),
            embeddings=frozenset(embeddings),
            head=_head(nodes, linear, arrays),
        )


class _Weights:
    """Names for the arrays to be stored, equal matrices under one."""

    def __init__(self, arrays: Mapping[str, NDArray[np.generic]]) -> None:
        self._arrays = arrays
        self._modules: dict[tuple[tuple[int, ...], bytes], str] = {}
        self._transposed: dict[str, bool] = {}
        self.matrices: dict[str, str] = {}
        self.vectors: dict[str, str] = {}
        self.tensors: dict[str, LazyTensor] = {}

    def add_matrix(self, name: str, *, transposed: bool) -> bool:
        """Whether the array is a matrix to be stored so; one that is both this and its transpose is the first only."""
        if self._transposed.setdefault(name, transposed) != transposed:
            return False
        if name in self.matrices:
            return True
        array = self._arrays[name]
        rows = LazyTensor.from_array(array.T if transposed else array)
        digest = hashlib.blake2b()
        for _, _, slab in rows.slabs():
            digest.update(np.ascontiguousarray(slab).data)
        module = self._modules.setdefault((rows.shape, digest.digest()), name.removesuffix(".weight"))
        self.matrices[name] = module
        self.tensors.setdefault(f"{module}.weight", rows)
        return True

    def add_vectors(self, names: Iterator[str]) -> None:
        for name in names:
            array = self._arrays[name]
            if array.dtype == np.float32 and array.nbytes > _INLINE_BYTES:
                self.vectors[name] = f"{name}.float" if name in self.tensors else name
                self.tensors[self.vectors[name]] = LazyTensor.from_array(array)


def _is_linear(node: NodeProto, arrays: Mapping[str, NDArray[np.generic]]) -> bool:
    """``x @ matrix``, or a ``Gemm`` that is that plus a bias."""
    if node.op_type not in ("MatMul", "Gemm") or not _is_matrix(arrays.get(node.input[1])) or node.input[0] in arrays:
        return False
    columns = arrays[node.input[1]].shape[1 if _attribute(node, "transB", 0) else 0]
    scaled = any(_attribute(node, name, 1.0) != 1.0 for name in ("alpha", "beta"))
    return columns >= _NARROWEST and not scaled and not _attribute(node, "transA", 0)


def _is_embedding(node: NodeProto, arrays: Mapping[str, NDArray[np.generic]], ids: frozenset[str]) -> bool:
    """Rows of a matrix by token id; tables looked up by anything else, positions say, are left as they are."""
    return (
        node.op_type == "Gather"
        and not _attribute(node, "axis", 0)
        and node.input[1] in ids
        and _is_matrix(arrays.get(node.input[0]))
    )


def _is_matrix(array: NDArray[np.generic] | None) -> bool:
    return array is not None and array.ndim == 2 and array.dtype == np.float32


def _ids(nodes: list[NodeProto]) -> frozenset[str]:
    """Names of what is ``input_ids`` in whatever shape or type."""
    names = {IDS}
    for node in nodes:
        if node.op_type in _RESHAPING and node.input[0] in names:
            names.update(node.output)
    return frozenset(names)


def _other_inputs(node: NodeProto, is_linear: bool, is_embedding: bool) -> list[str]:
    """The inputs of a node but for its matrix."""
    matrix = 1 if is_linear else 0 if is_embedding else -1
    return [name for position, name in enumerate(node.input) if position != matrix]


def _head(nodes: list[NodeProto], linear: set[int], arrays: Mapping[str, NDArray[np.generic]]) -> int | None:
    """From the logits back through what is done to each of them alone, to the product that makes them.

    Only a ``MatMul`` will do: such a chain keeps the rank, so that it multiplies [b, t, d].
    """
    producers = {name: position for position, node in enumerate(nodes) for name in node.output}
    uses = Counter(name for node in nodes for name in node.input)
    name = ALL_LOGITS
    while name in producers:
        node = nodes[producers[name]]
        if node.op_type == "MatMul" and producers[name] in linear:
            return producers[name]
        computed = [value for value in node.input if value not in arrays]
        if node.op_type not in _ELEMENTWISE or len(computed) != 1 or uses[computed[0]] != 1:
            return None
        (name,) = computed
    return None


def _kv_spec(
    inputs: Mapping[str, ValueInfoProto], outputs: Mapping[str, ValueInfoProto], problems: list[str]
) -> KVSpec:
    """The KV cache of the graph's inputs and outputs; what is unknown or missing is added to ``problems``."""
    known = {IDS, MASK, POSITIONS}
    problems += [f"it asks for an input {name!r}" for name in inputs if name not in known and not _PAST.fullmatch(name)]
    shapes = {name: _shape(value) for name, value in inputs.items()}
    layers: list[KVLayer] = []
    for i in range(sum(map(bool, map(_PAST.fullmatch, inputs))) // 2):
        names = [f"{kind}.{i}.{part}" for kind in ("past_key_values", "present") for part in ("key", "value")]
        key, value = (shapes.get(name, []) for name in names[:2])
        missing = [name for name in names if name not in inputs and name not in outputs]
        if missing:
            problems.append(f"it has no {', '.join(missing)}")
        elif len(key) != 4 or key[1::2] != value[1::2]:
            problems.append(
                f"layer {i} keeps keys {key} and values {value}, not [rows, heads, positions, size] of both"
            )
        elif not isinstance(key[1], int) or not isinstance(key[3], int):
            problems.append(f"layer {i} keeps keys {key}: number and size of its heads are not known")
        else:
            layers.append(KVLayer(FULL, key[1], key[3], *names))
    if not layers and not problems:
        problems.append("it has no KV cache")
    return KVSpec("float32", "concat", {FULL: CacheClass(None, None, None)}, tuple(layers))


def _shape(value: ValueInfoProto) -> list[int | str]:
    tensor = value.type.tensor_type
    if tensor.elem_type == TensorProto.UNDEFINED:
        return []
    return [d.dim_value if d.HasField("dim_value") else d.dim_param for d in tensor.shape.dim]


def _attribute(node: NodeProto, name: str, default: float) -> float:
    for attribute in node.attribute:
        if attribute.name == name:
            return onnx.helper.get_attribute_value(attribute)
    return default
