"""A graph of stock operators, and the same graph as it is rewritten, run by ONNX Runtime."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from edgegen.graph.kernel_operators import with_kernels
from edgegen.model.kernels import kernel_library
from tests.kernels.material import register

needs_kernels = pytest.mark.skipif(kernel_library() is None, reason="the kernels are not compiled")

Floats = NDArray[np.float32]


@dataclass
class Stock:
    """A graph of these nodes; inputs are float32 and have any shape."""

    nodes: Sequence[onnx.NodeProto]
    inputs: Sequence[str]
    outputs: Sequence[str]
    weights: Mapping[str, Floats] = field(default_factory=dict[str, Floats])
    functions: Sequence[onnx.FunctionProto] = ()

    def serialized(self) -> bytes:
        def values(names: Sequence[str]) -> list[onnx.ValueInfoProto]:
            return [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in names]

        tensors = [numpy_helper.from_array(array, name) for name, array in self.weights.items()]
        graph = helper.make_graph(self.nodes, "stock", values(self.inputs), values(self.outputs), tensors)
        opsets = [helper.make_opsetid("", 21), *(helper.make_opsetid(name, 1) for name in ("com.microsoft", "edgegen"))]
        made = helper.make_model(graph, ir_version=10, opset_imports=opsets, functions=self.functions)
        return made.SerializeToString()

    def rewritten(self) -> bytes:
        return with_kernels(self.serialized())

    def op_types(self) -> list[str]:
        """Of the rewritten graph; ours have their domain before them."""
        nodes = onnx.load_from_string(self.rewritten()).graph.node
        return [f"edgegen.{node.op_type}" if node.domain == "edgegen" else node.op_type for node in nodes]

    def run(self, feeds: Mapping[str, Floats], *, stock: bool = False, threads: int = 1) -> list[Floats]:
        return session(self.serialized() if stock else self.rewritten(), threads).run(list(self.outputs), dict(feeds))


def session(graph: bytes, threads: int = 1) -> Any:
    """With our operators, on the CPU."""
    options = cast(Any, ort).SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4
    register(options, graph)
    return cast(Any, ort).InferenceSession(graph, options, providers=["CPUExecutionProvider"])


def same_bits(a: Floats, b: Floats) -> bool:
    return a.shape == b.shape and bool((a.view(np.uint32) == b.view(np.uint32)).all())


def units(found: Floats, exact: NDArray[np.float64]) -> NDArray[np.float64]:
    """How far off, in units of the last place that a float32 of that size has."""
    step = np.spacing(np.maximum(np.abs(exact), np.finfo(np.float32).tiny).astype(np.float32)).astype(np.float64)
    return np.abs(found.astype(np.float64) - exact) / step
