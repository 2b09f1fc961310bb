"""Our norms: against float64 and the stock operators, on every instruction set, and in rewritten graphs."""

from typing import Any

import numpy as np
import onnx
import pytest
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from tests.kernels.material import instruction_sets
from tests.kernels.stock import Floats, Stock, needs_kernels, same_bits, session

pytestmark = needs_kernels

EPSILON = 1e-5
NORMS = {
    "LayerNormalization": ["x", "weight", "bias"],
    "SimplifiedLayerNormalization": ["x", "weight"],
    "SkipLayerNormalization": ["x", "skip", "weight", "bias", "skip_bias"],
    "SkipSimplifiedLayerNormalization": ["x", "skip", "weight", "skip_bias"],
}
WIDTHS = (1, 5, 16, 31, 64, 768, 1000)


def vectors(width: int, *shape: int, seed: int = 0) -> dict[str, Floats]:
    """The operators' inputs by name: x and skip of ``shape``, with a mean that is not 0."""
    rng = np.random.default_rng(seed)
    shapes = {"x": (*shape, width), "skip": (*shape, width)}
    names = ("x", "skip", "weight", "bias", "skip_bias")
    return {name: rng.normal(0.5, 2, shapes.get(name, (width,))).astype(np.float32) for name in names}


def graph(op_type: str, values: dict[str, Floats], left_out: str = "") -> Stock:
    """``left_out``: an optional input."""
    skips = op_type.startswith("Skip")
    inputs = [name if name != left_out else "" for name in NORMS[op_type]]
    outputs = ["y", "", "", "sum"] if skips else ["y"]
    attributes: dict[str, Any] = {"epsilon": EPSILON} | ({} if skips else {"axis": -1})
    made = helper.make_node(op_type, inputs, outputs, domain="com.microsoft" if skips else "", **attributes)
    return Stock(
        [made],
        ["x", "skip"] if skips else ["x"],
        [name for name in outputs if name],
        {name: values[name] for name in inputs if name and name not in ("x", "skip")},
    )


def fed(made: Stock, values: dict[str, Floats]) -> dict[str, Floats]:
    return {name: values[name] for name in made.inputs}


def exact(op_type: str, values: dict[str, Floats]) -> NDArray[np.float64]:
    """The definition, in float64."""
    wide = {name: array.astype(np.float64) for name, array in values.items()}
    x, bias = wide["x"], 0.0
    if op_type.startswith("Skip"):
        x = x + wide["skip"] + wide["skip_bias"]
    if "Simplified" not in op_type:
        x, bias = x - x.mean(axis=-1, keepdims=True), wide["bias"]
    return x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + EPSILON) * wide["weight"] + bias


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("op_type", NORMS)
def test_a_norm_is_near_float64s(op_type: str, width: int) -> None:
    values = vectors(width, 40, 3)
    made = graph(op_type, values)
    assert made.op_types() == ["edgegen.Norm"]
    found, expected = made.run(fed(made, values))[0], exact(op_type, values)
    assert (np.abs(found - expected) <= np.maximum(1e-6 * np.abs(expected), 8e-6)).all()


@pytest.mark.parametrize("width", [width for width in WIDTHS if width > 5])  # errors of few have a wide spread
@pytest.mark.parametrize("op_type", NORMS)
def test_a_norm_is_as_near_float64s_as_the_stock_operator(op_type: str, width: int) -> None:
    values = vectors(width, 40, 3)
    made, expected = graph(op_type, values), exact(op_type, values)
    ours, stock = (made.run(fed(made, values), stock=stock)[0] - expected for stock in (False, True))
    assert np.sqrt((ours**2).mean()) <= 1.05 * np.sqrt((stock**2).mean()) + 1e-8
    assert np.abs(ours).max() <= 1.3 * np.abs(stock).max() + 1e-7


@pytest.mark.parametrize("op_type", ["SkipLayerNormalization", "SkipSimplifiedLayerNormalization"])
def test_the_sum_is_that_of_floats(op_type: str) -> None:
    values = vectors(100, 2, 3)
    made = graph(op_type, values)
    assert same_bits(made.run(fed(made, values))[1], values["x"] + values["skip"] + values["skip_bias"])
    alone = graph(op_type, values)
    alone.outputs = ["y"]
    assert same_bits(alone.run(fed(made, values))[0], made.run(fed(made, values))[0])


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("isa", instruction_sets())
@pytest.mark.parametrize("op_type", NORMS)
def test_every_instruction_set_gives_the_same_bits(
    op_type: str, isa: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = vectors(width, 3, 2)
    made = graph(op_type, values)
    monkeypatch.setenv("EDGEGEN_ISA", "portable")
    expected = made.run(fed(made, values))
    monkeypatch.setenv("EDGEGEN_ISA", isa)
    assert all(map(same_bits, made.run(fed(made, values)), expected))


@pytest.mark.parametrize("op_type", NORMS)
def test_a_row_depends_on_no_other_row_and_no_thread(op_type: str) -> None:
    values = vectors(768, 1, 200)
    made = graph(op_type, values)
    feeds = fed(made, values)
    expected = made.run(feeds)
    assert all(map(same_bits, made.run(feeds, threads=2), expected))
    for t in (0, 77, 199):
        row = made.run({name: np.ascontiguousarray(array[:, t : t + 1]) for name, array in feeds.items()})
        assert all(
            same_bits(one, np.ascontiguousarray(whole[:, t : t + 1])) for one, whole in zip(row, expected, strict=True)
        )


@pytest.mark.parametrize(
    ("op_type", "left_out"),
    [("LayerNormalization", "bias"), ("SkipLayerNormalization", "bias"), ("SkipLayerNormalization", "skip_bias")],
)
def test_biases_may_be_left_out(op_type: str, left_out: str) -> None:
    values = vectors(50, 2, 2)
    made = graph(op_type, values, left_out)
    without = {**values, left_out: np.zeros(50, np.float32)}
    assert made.op_types() == ["edgegen.Norm"]
    assert made.run(fed(made, values))[0] == pytest.approx(exact(op_type, without), abs=1e-5)


@pytest.mark.parametrize("shape", [(1, 4, 20), (4, 20)])
def test_skip_is_repeated_along_the_first_axes(shape: tuple[int, ...]) -> None:
    values = vectors(20, 3, 4)
    values["skip"] = np.random.default_rng(1).normal(size=shape).astype(np.float32)
    made = graph("SkipLayerNormalization", values)
    y, total = made.run(fed(made, values))
    assert same_bits(total, values["x"] + values["skip"] + values["skip_bias"])
    assert y == pytest.approx(exact("SkipLayerNormalization", values), abs=1e-5)


@pytest.mark.parametrize("shape", [(3, 4, 19), (3, 20), (3, 1, 20), (2, 3, 4, 20)])
def test_a_skip_of_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    values = vectors(20, 3, 4)
    made = graph("SkipLayerNormalization", values)
    with pytest.raises(Exception, match="Norm: skip has neither the shape of x nor of its last axes"):
        made.run({"x": values["x"], "skip": np.zeros(shape, np.float32)})


def test_another_width_than_the_weights_is_refused() -> None:
    made = graph("SimplifiedLayerNormalization", vectors(20, 3))
    with pytest.raises(Exception, match="Norm: the last dimension of x is not the weight's"):
        made.run({"x": np.zeros((3, 21), np.float32)})


def test_a_norm_of_no_rows_is_empty() -> None:
    values = vectors(20, 0)
    made = graph("SkipLayerNormalization", values)
    assert [array.shape for array in made.run(fed(made, values))] == [(0, 20), (0, 20)]


def test_what_is_no_number_stays_in_its_row() -> None:
    values = vectors(20, 2)
    values["x"][0, 3] = np.nan
    y = graph("SimplifiedLayerNormalization", values).run({"x": values["x"]})[0]
    assert np.isnan(y[0]).all()
    assert np.isfinite(y[1]).all()


def test_norms_that_the_kernel_cannot_run_stay() -> None:
    """A weight that is computed, another axis, the mean as an output."""
    values = vectors(20, 2)
    computed = graph("SimplifiedLayerNormalization", values)
    computed.weights, computed.inputs = {}, ["x", "weight"]
    assert computed.op_types() == ["SimplifiedLayerNormalization"]
    other_axis = helper.make_node("LayerNormalization", ["x", "weight"], ["y"], axis=0, epsilon=EPSILON)
    assert Stock([other_axis], ["x"], ["y"], {"weight": values["weight"]}).op_types() == ["LayerNormalization"]
    with_mean = helper.make_node("LayerNormalization", ["x", "weight"], ["y", "mean"], axis=-1, epsilon=EPSILON)
    assert Stock([with_mean], ["x"], ["y", "mean"], {"weight": values["weight"]}).op_types() == ["LayerNormalization"]


def ours(inputs: list[str], weights: dict[str, NDArray[Any]]) -> onnx.ModelProto:
    """A graph of our operator."""
    made = helper.make_node("Norm", inputs, ["y", "sum"], domain="edgegen", centered=1, epsilon=EPSILON)
    fed_in = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in inputs if name not in weights]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("y", "sum")]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("edgegen", 1)]
    body = helper.make_graph([made], "ours", fed_in, outputs, tensors)
    return helper.make_model(body, ir_version=10, opset_imports=opsets)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({}, "the weights must be an initializer"),
        ({"weight": np.ones(0, np.float32)}, "the weights must be floats"),
        ({"weight": np.ones(20, np.float32), "bias": np.ones(19, np.float32)}, "biases have 19 elements"),
    ],
)
def test_a_graph_that_lies_is_refused(weights: dict[str, NDArray[Any]], message: str) -> None:
    model = ours(["x", "weight", "bias"], weights)
    with pytest.raises(Exception, match=message):
        session(model.SerializeToString())


def test_a_sum_without_skip_is_refused() -> None:
    model = ours(["x", "weight"], {"weight": np.ones(20, np.float32)})
    with pytest.raises(Exception, match="there is no sum without skip"):
        session(model.SerializeToString()).run(["sum"], {"x": np.zeros((2, 20), np.float32)})
