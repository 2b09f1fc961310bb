"""Functions of graphs: each body alone is opened and run by the installed ONNX Runtime, and passes the check."""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from numpy.typing import NDArray
from onnx import numpy_helper

from edgegen.bundle.layer_state import FixedState
from edgegen.graph.check import graph_problems
from edgegen.graph.functions import FUNCTIONS, operator_of
from edgegen_export.graph.activations import negative_softplus
from edgegen_export.graph.builder import GraphBuilder, Tensor, Value
from edgegen_export.graph.gated_delta_net import DeltaRule
from edgegen_export.graph.layer_graph import ModelGraph
from edgegen_export.graph.mamba1 import selective_scan
from edgegen_export.graph.matrices import linear, of_each_head
from edgegen_export.graph.parameters import BlockHeads, TernaryMatrix
from edgegen_export.graph.short_conv import convolved

Weights = dict[str, NDArray[Any]]
Write = Callable[[GraphBuilder, Weights], Value]
TOKENS, CHANNELS = 3, 8


def weight(weights: Weights, name: str, *shape: int, dtype: str = "float32") -> Tensor:
    """A weight of ones, in the graph."""
    weights[name] = np.ones(shape, dtype)
    return Tensor(name, dtype, shape, 0, 0)


class Kernel:
    """Parameters of a convolution."""

    def __init__(self, weights: Weights, bias: bool) -> None:
        self._weights, self._bias = weights, bias

    def vector(self, name: str) -> Tensor:
        return weight(self._weights, name, CHANNELS, 1, 4)

    def bias(self, *modules: str) -> Tensor | None:
        return weight(self._weights, "bias", CHANNELS) if self._bias else None


def fed(g: GraphBuilder, name: str, *sizes: int) -> Value:
    return g.input(name, "float32", [1, TOKENS, *sizes])


def softplus(g: GraphBuilder, weights: Weights) -> Value:
    return negative_softplus(g, fed(g, "x", CHANNELS))


def convolution(bias: bool, activated: bool) -> Write:
    def write(g: GraphBuilder, weights: Weights) -> Value:
        params, config = cast(Any, Kernel(weights, bias)), cast(Any, None)
        state = FixedState(0, "past", "present", (3, CHANNELS))
        return convolved(ModelGraph(g, params, config), "kernel", fed(g, "x", CHANNELS), state, activated=activated)

    return write


def delta_rule(gate: Any) -> Write:
    def write(g: GraphBuilder, weights: Weights) -> Value:
        qkv, z = [fed(g, name, size) for name, size in (("q", 4), ("k", 4), ("v", 12))], fed(g, "z", 12)
        rule = DeltaRule(1, FixedState(0, "past", "present", (2, 4, 6)), 1e-6, gate)
        norm = g.weight(weight(weights, "norm", 12))
        return rule.read(g, qkv, fed(g, "decay", 2), fed(g, "beta", 2), norm, z)

    return write


def scan(g: GraphBuilder, weights: Weights) -> Value:
    lines = [fed(g, name, *sizes) for name, sizes in {"dt": (1, 8), "x": (1, 8), "b": (5, 1), "c": (1, 5)}.items()]
    rate, past = g.weight(weight(weights, "rate", 5, 8)), g.input("past", "float32", [1, 5, 8])
    present, y = g.function("SelectiveScan_by_channel", [past, *lines, rate], 2, selective_scan, {})
    g.output("present", present, "float32", [1, 5, 8])
    return y


def ternary(bias: bool) -> Write:
    def write(g: GraphBuilder, weights: Weights) -> Value:
        codes, scales = weight(weights, "codes", 6, 2, dtype="uint8"), weight(weights, "scales", 6)
        added = weight(weights, "bias", 6) if bias else None
        return linear(g, TernaryMatrix(codes, scales, 6), fed(g, "x", CHANNELS), added)

    return write


def heads(g: GraphBuilder, weights: Weights) -> Value:
    codes, scales = weight(weights, "codes", 6, 1, 32, dtype="uint8"), weight(weights, "scales", 6, 1, 1)
    return of_each_head(g, BlockHeads(codes, scales, 2, 3, 32, 32), g.input("x", "float32", [TOKENS, 2, 32]))


WRITTEN: dict[str, Write] = {
    "Activation_negative_softplus": softplus,
    "CausalConv_4": convolution(bias=False, activated=False),
    "CausalConv_4_bias": convolution(bias=True, activated=False),
    "CausalConv_4_silu": convolution(bias=False, activated=True),
    "CausalConv_4_bias_silu": convolution(bias=True, activated=True),
    "GatedDeltaRule_1_2_4_6_silu": delta_rule("silu"),
    "GatedDeltaRule_1_2_4_6_sigmoid": delta_rule("sigmoid"),
    "SelectiveScan_by_channel": scan,
    "BlockMatMul_ternary": ternary(bias=False),
    "BlockMatMul_ternary_bias": ternary(bias=True),
    "BlockMatMulPerHead_2_3_32": heads,
}


def graph_of(write: Write) -> onnx.ModelProto:
    g, weights = GraphBuilder("alone"), Weights()
    g.output("y", write(g, weights), "float32", ["a", "b", "c"])
    model = g.model()
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in weights.items())
    return model


def test_every_operator_that_may_be_a_function_is_written() -> None:
    assert {operator_of(name.encode()) for name in WRITTEN} == FUNCTIONS.keys()


@pytest.mark.parametrize("name", WRITTEN)
def test_a_body_alone_is_opened_and_run(name: str) -> None:
    model = graph_of(WRITTEN[name])
    assert [function.name for function in model.functions] == [name]
    assert [node.op_type for node in model.graph.node if node.domain == "edgegen"] == [name]
    content = model.SerializeToString()
    assert graph_problems(content, {}) == []
    session: Any = ort.InferenceSession(content, providers=["CPUExecutionProvider"])
    shapes = {each.name: [1 if isinstance(size, str) else size for size in each.shape] for each in session.get_inputs()}
    feeds = {key: np.full(shape, 0.5, np.float32) for key, shape in shapes.items()}
    assert all(np.isfinite(array).all() for array in session.run(None, feeds))


def test_nodes_of_one_name_share_a_body() -> None:
    g = GraphBuilder("two")
    x = g.input("x", "float32", [1, 2, 3])
    g.output("y", negative_softplus(g, negative_softplus(g, x)), "float32", [1, 2, 3])
    assert len(g.model().functions) == 1


def test_a_name_has_one_body() -> None:
    g = GraphBuilder("two")
    x = g.input("x", "float32", [1, 2, 3])
    g.function("Activation_own", [x], 1, lambda f, inputs: [f.op.Neg(*inputs)], {})
    with pytest.raises(AssertionError, match="Activation_own has two bodies"):
        g.function("Activation_own", [x], 1, lambda f, inputs: [f.op.Abs(*inputs)], {})
