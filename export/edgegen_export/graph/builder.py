"""GraphBuilder: ONNX graphs written the way the formula reads.

``g.op.Add(residual, attention)`` emits one node and returns its output; ``g.ms`` does the same for ONNX Runtime's
own operators (domain ``com.microsoft``); ``g.function`` emits one of edgegen's operators and, once per graph, its body
in stock ones. Weights are ``Tensor``s: a name, a dtype, a shape and an offset in the
bundle's weights file; several graphs may use the same ``Tensor``.
"""

from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import NewType, cast

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import (
    FunctionProto,
    GraphProto,
    ModelProto,
    NodeProto,
    OperatorSetIdProto,
    TensorProto,
    ValueInfoProto,
    helper,
    numpy_helper,
)

from edgegen.graph.functions import DOMAIN

Value = NewType("Value", str)
"""The name of a tensor in a graph."""

NONE = Value("")
"""An optional input or output that is left out."""

OPSET = 21
IR_VERSION = 10
MICROSOFT = "com.microsoft"

_DTYPES: dict[str, int] = {
    "float32": TensorProto.FLOAT,
    "float16": TensorProto.FLOAT16,
    "bfloat16": TensorProto.BFLOAT16,
    "uint8": TensorProto.UINT8,
    "int8": TensorProto.INT8,
    "int32": TensorProto.INT32,
    "int64": TensorProto.INT64,
    "bool": TensorProto.BOOL,
}

Dimension = int | str
AttributeValue = int | float | str | Sequence[int] | GraphProto
Body = Callable[["GraphBuilder", Sequence[Value]], Sequence[Value]]
"""Emits the nodes of a function over its inputs, in a graph of its own, and returns its outputs."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """A weight: ``length`` bytes at ``offset`` of the weights file, or, with no ``offset``, a graph input."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    offset: int | None = None
    length: int = 0


class _Operators:
    """``ops.Add(a, b, axis=0)``: one node of ``domain``; the attribute's name is the operator's."""

    def __init__(self, graph: "GraphBuilder", domain: str) -> None:
        self._graph = graph
        self._domain = domain

    def __getattr__(self, op_type: str) -> Callable[..., Value]:
        def emit(*inputs: Value, **attributes: AttributeValue) -> Value:
            return self._graph.node(op_type, inputs, 1, domain=self._domain, attributes=attributes)[0]

        return emit


class GraphBuilder:
    """One graph that is being built. ``opset``: the version of the nodes that are copied into it, if any."""

    def __init__(self, name: str, opset: int = OPSET) -> None:
        self.name = name
        self.opset = opset
        self.op = _Operators(self, "")
        self.ms = _Operators(self, MICROSOFT)
        self.inputs: dict[str, ValueInfoProto] = {}
        self.outputs: dict[str, ValueInfoProto] = {}
        self.weights: dict[str, Tensor] = {}
        self.casts: dict[str, NodeProto] = {}
        """Casts of 16-bit weights to float32, by output name; they stand before all other nodes."""
        self._scope: list[str] = []
        self._nodes: list[NodeProto] = []
        self._constants: dict[str, TensorProto] = {}
        self._counts: dict[str, int] = {}
        self._functions: dict[str, FunctionProto] = {}
        self._forms: dict[str, tuple[Body, list[bool], list[str]]] = {}

    @contextmanager
    def scope(self, name: str) -> Generator[None]:
        """Nodes emitted inside are named ``…/name/…``, so that a profile reads like the model."""
        self._scope.append(name)
        yield
        self._scope.pop()

    def input(self, name: str, dtype: str, shape: Sequence[Dimension]) -> Value:
        self.inputs[name] = helper.make_tensor_value_info(name, _DTYPES[dtype], list(shape))
        return Value(name)

    def output(self, name: str, value: Value, dtype: str, shape: Sequence[Dimension]) -> None:
        """Declare ``value`` as the graph output ``name``."""
        # Nearly always one of the last nodes made it.
        if made := next((node for node in reversed(self._nodes) if value in node.output), None):
            made.output[list(made.output).index(value)] = name
        self.outputs[name] = helper.make_tensor_value_info(name, _DTYPES[dtype], list(shape))

    def weight(self, tensor: Tensor) -> Value:
        """The weight's value; 16-bit floats are a storage format and become float32 when a session opens."""
        if tensor.offset is None:
            return self.input(tensor.name, tensor.dtype, tensor.shape)
        stored = self.stored(tensor)
        if tensor.dtype not in ("float16", "bfloat16"):
            return stored
        wide = f"{tensor.name}.float32"
        self.casts[wide] = helper.make_node("Cast", [tensor.name], [wide], name=wide, to=TensorProto.FLOAT)
        return Value(wide)

    def stored(self, tensor: Tensor) -> Value:
        """The weight as it is stored."""
        self.weights[tensor.name] = tensor
        return Value(tensor.name)

    def multiplied(self, weight: str) -> Value:
        """The value that the first node with ``weight`` as second input multiplies with it."""
        return next(Value(node.input[0]) for node in self._nodes if len(node.input) > 1 and node.input[1] == weight)

    def constant(self, array: NDArray[np.generic], name: str = "") -> Value:
        """A small constant, stored in the graph itself once per value; a longer one needs a name."""
        stored = _named(array, name) if name else _small(array.dtype, array.shape, array.tobytes())
        self._constants[stored.name] = stored
        return Value(stored.name)

    def axes(self, *axes: int) -> Value:
        return self.constant(np.array(axes, np.int64))

    def node(
        self,
        op_type: str,
        inputs: Sequence[Value],
        num_outputs: int,
        *,
        domain: str = "",
        attributes: dict[str, AttributeValue],
    ) -> tuple[Value, ...]:
        """Emit one node with ``num_outputs`` outputs and return their names."""
        path = "/".join([*self._scope, op_type])
        count = self._counts[path] = self._counts.get(path, -1) + 1
        name = f"{path}.{count}" if count else path
        outputs = [Value(name if k == 0 else f"{name}:{k}") for k in range(num_outputs)]
        node = helper.make_node(op_type, list(inputs), list(outputs), name=name, domain=domain or None)
        node.attribute.extend(helper.make_attribute(key, value) for key, value in attributes.items())
        self._nodes.append(node)
        return tuple(outputs)

    def split(self, x: Value, *sizes: int) -> tuple[Value, ...]:
        """Parts of ``x`` [b, t, c], of ``sizes`` channels each."""
        return self.node("Split", [x, self.axes(*sizes)], len(sizes), attributes={"axis": 2})

    def parts(self, x: Value, count: int, *, axis: int = 2) -> tuple[Value, ...]:
        """Parts of ``x``, all of the same size."""
        return self.node("Split", [x], count, attributes={"axis": axis, "num_outputs": count})

    def function(
        self,
        name: str,
        inputs: Sequence[Value],
        num_outputs: int,
        body: Body,
        attributes: Mapping[str, AttributeValue],
    ) -> tuple[Value, ...]:
        """Emit one node of edgegen's operator ``name``, whose form follows a ``_``, and keep its ``body``.

        All nodes of a name have one body, which knows of their ``attributes`` nothing: these are the kernel's.
        """
        form = (body, [bool(one) for one in inputs], [*attributes])
        if self._forms.get(name) != form:  # the same body emits the same nodes
            made = self._function(name, inputs, body, attributes)
            assert self._functions.setdefault(name, made) == made, f"{name} has two bodies"
            self._forms[name] = form
        return self.node(name, trimmed(list(inputs)), num_outputs, domain=DOMAIN, attributes=dict(attributes))

    def _function(
        self, name: str, inputs: Sequence[Value], body: Body, attributes: Mapping[str, AttributeValue]
    ) -> FunctionProto:
        inner, names = GraphBuilder(name, self.opset), [f"input{k}" for k in range(len(inputs))]
        outputs = body(inner, [Value(own) if one else NONE for own, one in zip(names, inputs, strict=True)])
        constants = [helper.make_node("Constant", [], [key], value=one) for key, one in inner._constants.items()]
        return helper.make_function(
            DOMAIN, name, names, list(outputs), [*constants, *inner._nodes], _opsets(self.opset), list(attributes)
        )

    def copy(self, node: NodeProto, inputs: Sequence[Value]) -> tuple[Value, ...]:
        """Emit a copy of another graph's ``node`` over ``inputs``, with its names."""
        copied = NodeProto()
        copied.CopyFrom(node)
        copied.input[:] = inputs
        self._nodes.append(copied)
        return tuple(Value(name) for name in copied.output)

    def graph(self, *outputs: str) -> GraphProto:
        """The graph as the body of a node in another graph, whose values it may use; ``outputs`` in this order."""
        found = [self.outputs[name] for name in outputs]
        return helper.make_graph(self._nodes, self.name, list(self.inputs.values()), found)

    def model(self, weights_file: str | None = None) -> ModelProto:
        """The graph as an ONNX model whose weights are external data in ``weights_file``."""
        initializers = [_external(tensor, weights_file) for tensor in self.weights.values() if weights_file]
        graph = helper.make_graph(
            [*self.casts.values(), *self._nodes],
            self.name,
            list(self.inputs.values()),
            list(self.outputs.values()),
            [*initializers, *self._constants.values()],
        )
        functions = list(self._functions.values())
        return helper.make_model(
            graph,
            ir_version=IR_VERSION,
            opset_imports=_opsets(self.opset, *([DOMAIN] if functions else [])),
            producer_name="edgegen",
            functions=functions,
        )


def _opsets(opset: int, *more: str) -> list[OperatorSetIdProto]:
    return [helper.make_opsetid("", opset), *(helper.make_opsetid(domain, 1) for domain in (MICROSOFT, *more))]


def _named(array: NDArray[np.generic], name: str) -> TensorProto:
    return numpy_helper.from_array(array, f"constant/{array.dtype}{list(array.shape)}/{name}")


@lru_cache(1024)  # the same few in every layer of every graph
def _small(dtype: np.dtype[np.generic], shape: tuple[int, ...], data: bytes) -> TensorProto:
    return _named(np.frombuffer(data, dtype).reshape(shape), data.hex())


def _external(tensor: Tensor, location: str) -> TensorProto:
    proto = TensorProto(
        name=tensor.name,
        data_type=cast(TensorProto.DataType, _DTYPES[tensor.dtype]),
        dims=tensor.shape,
        data_location=TensorProto.EXTERNAL,
    )
    entries = {"location": location, "offset": tensor.offset, "length": tensor.length}
    proto.external_data.extend(onnx.StringStringEntryProto(key=k, value=str(v)) for k, v in entries.items())
    return proto


def trimmed(inputs: list[Value]) -> list[Value]:
    """``inputs`` without trailing omitted ones."""
    while inputs and not inputs[-1]:
        inputs.pop()
    return inputs
