"""Our activations: against float64 and the stock operators, on every instruction set, and in rewritten graphs."""

import math
from collections.abc import Callable

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper

from tests.kernels.material import instruction_sets
from tests.kernels.stock import Floats, Stock, needs_kernels, same_bits, session, units

pytestmark = needs_kernels

Doubles = NDArray[np.float64]


def node(kind: str, x: str = "x", y: str = "y") -> onnx.NodeProto:
    match kind:
        case "gelu_tanh":
            return helper.make_node("Gelu", [x], [y], approximate="tanh")
        case "gelu":
            return helper.make_node("Gelu", [x], [y])
        case "silu":
            return helper.make_node("QuickGelu", [x], [y], domain="com.microsoft", alpha=1.0)
        case "tanh":
            return helper.make_node("Tanh", [x], [y])
        case "sigmoid":
            return helper.make_node("Sigmoid", [x], [y])
        case _:
            return helper.make_node("Relu", [x], [y])


def gelu(x: Doubles) -> Doubles:
    return x * np.array([math.erfc(value) for value in (-x / math.sqrt(2)).tolist()]) / 2


def gelu_tanh(x: Doubles) -> Doubles:
    return x / (1 + np.exp(-2 * math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def silu(x: Doubles) -> Doubles:
    return x / (1 + np.exp(-x))


EXACT: dict[str, tuple[Callable[[Doubles], Doubles], float]] = {
    "gelu": (gelu, 8),
    "gelu_tanh": (gelu_tanh, 24),
    "silu": (silu, 3),
    "tanh": (np.tanh, 2),
    "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), 3),
}
"""By kind, the function, and how many units in the last place ours may be off between -5 and 5."""

X: Floats = np.concatenate(
    [np.linspace(-5, 5, 20_011), np.random.default_rng(0).normal(0, 1, 20_000), np.geomspace(1e-30, 5, 1000)]
).astype(np.float32)


def single(kind: str) -> Stock:
    return Stock([node(kind)], ["x"], ["y"])


def gated(kind: str, axis: int = 2) -> Stock:
    nodes = [
        helper.make_node("Split", ["x"], ["gate", "up"], axis=axis, num_outputs=2),
        node(kind, "gate", "active"),
        helper.make_node("Mul", ["active", "up"], ["y"]),
    ]
    return Stock(nodes, ["x"], ["y"])


@pytest.mark.parametrize("kind", EXACT)
def test_an_activation_is_near_float64s(kind: str) -> None:
    function, most = EXACT[kind]
    (found,) = single(kind).run({"x": X})
    assert units(found, function(X.astype(np.float64))).max() <= most


@pytest.mark.parametrize("kind", EXACT)
def test_an_activation_is_as_near_as_the_stock_operator(kind: str) -> None:
    exact = EXACT[kind][0](X.astype(np.float64))
    ours, stock = (single(kind).run({"x": X}, stock=stock)[0] - exact for stock in (False, True))
    assert np.sqrt((ours**2).mean()) <= 1.05 * np.sqrt((stock**2).mean())
    assert np.abs(ours).max() <= 1.25 * np.abs(stock).max()


@pytest.mark.parametrize("kind", EXACT)
def test_the_ends_of_what_floats_hold(kind: str) -> None:
    x = np.array([-3e38, -1e4, -100, -0.0, 0, 100, 1e4, 3e38, np.inf, np.nan, 1e-45], np.float32)
    (y,) = single(kind).run({"x": x})
    low, middle, high = {"tanh": (-1, 0, 1), "sigmoid": (0, 0.5, 1)}.get(kind, (0, 0, math.inf))
    assert y[:3] == pytest.approx([low, low, low])
    assert y[3:5].tolist() == [middle, middle]
    assert y[5:9].tolist() == [min(value, high) for value in x[5:9].tolist()]
    assert np.isnan(y[9])
    assert middle <= y[10] <= middle + 1e-45


@pytest.mark.parametrize("kind", EXACT)
@pytest.mark.parametrize("isa", instruction_sets())
def test_every_instruction_set_gives_the_same_bits(kind: str, isa: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.concatenate([X, [-3e38, -90, -104, 89, 3e38, np.inf, -0.0]]).astype(np.float32)
    monkeypatch.setenv("EDGEGEN_ISA", "portable")
    (expected,) = single(kind).run({"x": x})
    monkeypatch.setenv("EDGEGEN_ISA", isa)
    assert same_bits(single(kind).run({"x": x})[0], expected)
    assert same_bits(single(kind).run({"x": x}, threads=2)[0], expected)
    assert all(
        same_bits(single(kind).run({"x": x[i : i + n]})[0], expected[i : i + n]) for i, n in ((0, 1), (3, 15), (7, 37))
    )


@pytest.mark.parametrize("kind", [*EXACT, "relu"])
@pytest.mark.parametrize("shape", [(1, 1, 2), (2, 3, 74), (1, 7, 9000)])
def test_a_gate_is_one_node(kind: str, shape: tuple[int, ...]) -> None:
    x = np.random.default_rng(1).normal(0, 2, shape).astype(np.float32)
    graph = gated(kind)
    assert graph.op_types() == ["edgegen.Activation"]
    gate, up = np.split(x, 2, axis=-1)
    (active,) = single(kind).run({"x": np.ascontiguousarray(gate)})
    assert same_bits(graph.run({"x": x})[0], active * up)
    assert same_bits(graph.run({"x": x}, threads=2)[0], active * up)


def test_a_gate_may_halve_another_axis_than_the_last() -> None:
    x = np.random.default_rng(1).normal(0, 2, (3, 4, 5)).astype(np.float32)
    graph = gated("silu", axis=1)
    assert graph.op_types() == ["edgegen.Activation"]
    assert graph.run({"x": x})[0] == pytest.approx(graph.run({"x": x}, stock=True)[0], abs=1e-6)


def test_what_else_reads_a_half_keeps_the_nodes() -> None:
    graph = gated("silu")
    graph.outputs = ["y", "gate"]
    assert graph.op_types() == ["Split", "edgegen.Activation", "Mul"]
    swapped = gated("silu")
    swapped.nodes[2].input[:] = ["active", "gate"]
    assert swapped.op_types() == ["Split", "edgegen.Activation", "Mul"]


def test_other_operators_stay() -> None:
    other = helper.make_node("QuickGelu", ["x"], ["y"], domain="com.microsoft", alpha=1.702)
    assert Stock([other], ["x"], ["y"]).op_types() == ["QuickGelu"]
    assert single("relu").op_types() == ["Relu"]


def test_no_floats_are_no_floats() -> None:
    assert single("gelu").run({"x": np.zeros((2, 0), np.float32)})[0].shape == (2, 0)
    assert gated("gelu").run({"x": np.zeros((0, 1, 4), np.float32)})[0].shape == (0, 1, 2)


@pytest.mark.parametrize("attributes", [{"kind": 7, "gate_axis": 0}, {"kind": -1, "gate_axis": 0}, {"kind": 0}])
def test_a_graph_that_lies_is_refused(attributes: dict[str, int]) -> None:
    with pytest.raises(Exception, match=r"Activation: there is no such kind|gate_axis"):
        session(ours(attributes))


@pytest.mark.parametrize("shape", [(2, 3), (2, 3, 5), (4,)])
def test_a_shape_that_cannot_be_halved_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(Exception, match="no such axis"):
        session(ours({"kind": 0, "gate_axis": 2})).run(None, {"x": np.zeros(shape, np.float32)})


def ours(attributes: dict[str, int]) -> bytes:
    """A graph of our operator with these attributes."""
    made = helper.make_node("Activation", ["x"], ["y"], domain="edgegen")
    made.attribute.extend(helper.make_attribute(name, value) for name, value in attributes.items())
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xy"]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("edgegen", 1)]
    graph = helper.make_graph([made], "ours", values[:1], values[1:])
    return helper.make_model(graph, ir_version=10, opset_imports=opsets).SerializeToString()
