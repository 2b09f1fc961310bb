"""Fused layers, of matrices, norms and activations: which nodes they take, and that they change no bit."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from tests.kernels.material import Weights, instruction_set, instruction_sets, random_weights
from tests.kernels.stock import Floats, Stock, needs_kernels, same_bits, session

pytestmark = needs_kernels

EPSILON = 1e-5
STANDARD = {"Gelu", "Tanh", "Split", "Mul", "LayerNormalization", "SimplifiedLayerNormalization"}
"""Operators of ONNX itself, or that ONNX Runtime has in its domain."""


@dataclass
class Line:
    """A graph of stock operators, each of which takes what the one before it gives.

    Attributes:
        value: what the last one gives.
        total: the sum of the last norm that skips; at first what the graph's caller gives.
        made: every value on the way.
    """

    seed: int = 0
    value: str = "x"
    total: str = "skip"
    nodes: list[onnx.NodeProto] = field(default_factory=list[onnx.NodeProto])
    weights: dict[str, Any] = field(default_factory=dict[str, Any])
    made: list[str] = field(default_factory=list[str])

    def _name(self, what: str) -> str:
        return f"{what}{len(self.nodes)}"

    def _add(self, op_type: str, inputs: list[str], outputs: Sequence[str], **attributes: Any) -> None:
        domain = "" if op_type in STANDARD else "com.microsoft"
        self.nodes.append(helper.make_node(op_type, inputs, list(outputs), domain=domain, **attributes))
        self.made += [name for name in outputs if name]
        self.value = outputs[0]

    def _vector(self, what: str, width: int) -> str:
        name = self._name(what)
        self.weights[name] = np.random.default_rng([self.seed, len(self.weights)]).normal(1, 1, width).astype("f4")
        return name

    def matrix(self, columns: int, rows: int, *, bits: int = 8, zeros: bool = False, bias: bool = False) -> None:
        rng = np.random.default_rng([self.seed, len(self.nodes)])
        block = 64 if bits == 8 else 32
        made: Weights = random_weights(rng, columns, rows, block=block, bits=bits, zeros=zeros, bias=bias)
        parts = {"codes": made.codes, "scales": made.wide_scales(), "zeros": made.zeros, "": None, "bias": made.bias}
        inputs = [self.value]
        for what, array in parts.items():
            inputs.append(self._name(what) if array is not None else "")
            if array is not None:
                self.weights[inputs[-1]] = array
        known = {"K": columns, "N": rows, "bits": bits, "block_size": block, "accuracy_level": 4}
        self._add("MatMulNBits", inputs, [self._name("product")], **known)

    def norm(self, width: int, *, centered: bool = False, skips: bool = False, swapped: bool = False) -> None:
        weight = self._vector("weight", width)
        bias = [self._vector("bias", width)] if centered else []
        if not skips:
            kind = "LayerNormalization" if centered else "SimplifiedLayerNormalization"
            self._add(kind, [self.value, weight, *bias], [self._name("norm")], epsilon=EPSILON, axis=-1)
            return
        kind, total = "SkipLayerNormalization" if centered else "SkipSimplifiedLayerNormalization", self._name("sum")
        two = [self.total, self.value] if swapped else [self.value, self.total]
        inputs = [*two, weight, *bias, self._vector("skip_bias", width)]
        self._add(kind, inputs, [self._name("norm"), "", "", total], epsilon=EPSILON)
        self.total = total

    def activation(self, kind: str = "QuickGelu", *, gated: bool = False) -> None:
        attributes: dict[str, Any] = {"alpha": 1.0} if kind == "QuickGelu" else {}
        if not gated:
            self._add(kind, [self.value], [self._name("activated")], **attributes)
            return
        gate, up = self._name("gate"), self._name("up")
        self._add("Split", [self.value], [gate, up], axis=2, num_outputs=2)
        self._add(kind, [gate], [self._name("activated")], **attributes)
        self._add("Mul", [self.value, up], [self._name("gated")])

    def layer(self, width: int, inner: int, *, bits: int = 8, centered: bool = False, gated: bool = True) -> None:
        """From the attention output projection to the next QKV projection."""
        self.matrix(width, width, bits=bits, zeros=True)
        self.norm(width, centered=centered, skips=True)
        self.matrix(width, inner * (2 if gated else 1), bits=bits, bias=True)
        self.activation("QuickGelu" if gated else "Gelu", gated=gated)
        self.matrix(inner, width, bits=bits)
        self.norm(width, centered=centered, skips=True, swapped=True)
        self.matrix(width, 3 * width, bits=bits, bias=True)

    def graph(self, *more: str) -> Stock:
        """``more``: values that the graph's caller gets too."""
        results = [name for name in dict.fromkeys([self.value, *more]) if name != "skip"]
        given = [name for name in ("x", "skip") if any(name in node.input for node in self.nodes)]
        return Stock(self.nodes, given, results, self.weights)


def fed(made: Stock, width: int, *shape: int, seed: int = 0) -> dict[str, Floats]:
    rng = np.random.default_rng(seed)
    return {name: rng.normal(0.2, 2, (*shape, width)).astype(np.float32) for name in made.inputs}


def same_as_alone(line: Line, feeds: dict[str, Floats], threads: int = 1) -> bool:
    """Whether the graph gives the bits that it gives where its caller gets every value, so that nothing is joined."""
    whole, alone = line.graph(line.total), line.graph(*line.made)
    assert "edgegen.FusedLayers" not in alone.op_types()
    found = dict(zip(whole.outputs, whole.run(feeds, threads=threads), strict=True))
    expected = dict(zip(alone.outputs, alone.run(feeds), strict=True))
    return all(same_bits(array, expected[name]) for name, array in found.items())


@st.composite
def lines(draw: st.DrawFn) -> tuple[Line, int]:
    """Steps to fuse, and the width of the rows that it takes."""
    line, sizes = Line(seed=draw(st.integers(0, 2**32 - 1))), st.integers(1, 150)
    first = width = draw(sizes)
    bits, skip_width = draw(st.sampled_from([4, 8])), 0
    for _ in range(draw(st.integers(1, 9))):
        match draw(st.sampled_from(["matrix", "matrix", "norm", "skip", "activation", "gated"])):
            case "matrix":
                rows = skip_width if skip_width and draw(st.booleans()) else draw(sizes)
                line.matrix(width, rows, bits=bits, zeros=draw(st.booleans()), bias=draw(st.booleans()))
                width = rows
            case "norm":
                line.norm(width, centered=draw(st.booleans()))
            case "skip" if skip_width in (0, width) and (skip_width or width == first):
                line.norm(width, centered=draw(st.booleans()), skips=True, swapped=draw(st.booleans()))
                skip_width = width
            case "activation":
                line.activation(draw(st.sampled_from(["QuickGelu", "Gelu", "Tanh"])))
            case "gated" if width % 2 == 0:
                line.activation(gated=True)
                width //= 2
            case _:
                pass
    line.matrix(width, draw(sizes), bits=bits)
    return line, first


@settings(max_examples=60, deadline=None)
@given(drawn=lines(), shape=st.sampled_from([(1, 1), (1, 2), (3, 1), (1, 17), (2, 40)]), threads=st.integers(1, 3))
def test_fused_layers_give_the_bits_of_their_steps(
    drawn: tuple[Line, int], shape: tuple[int, int], threads: int
) -> None:
    line, width = drawn
    feeds = fed(line.graph(), width, *shape, seed=line.seed)
    for isa in instruction_sets():
        with instruction_set(isa):
            assert same_as_alone(line, feeds, threads)


@pytest.mark.parametrize("rows", [1, 2, 9, 100])
@pytest.mark.parametrize("threads", [1, 2, 4])
@pytest.mark.parametrize("bits", [4, 8])
def test_threads_and_chunks_change_no_bit(bits: int, threads: int, rows: int) -> None:
    line = Line()
    line.layer(96, 200, bits=bits)
    made, feeds = line.graph(line.total), fed(line.graph(), 96, 1, rows)
    assert made.op_types() == ["edgegen.FusedLayers"]
    assert same_as_alone(line, feeds, threads)
    whole = made.run(feeds, threads=threads)
    for t in {0, rows // 2, rows - 1}:
        one = made.run({name: np.ascontiguousarray(array[:, t : t + 1]) for name, array in feeds.items()})
        assert all(same_bits(a, np.ascontiguousarray(b[:, t : t + 1])) for a, b in zip(one, whole, strict=True))


def test_fused_layers_run_many_times_over() -> None:
    """Threads that come late, or not at all, neither wait for ever nor leave anything out."""
    line = Line()
    line.layer(64, 64)
    made, feeds = line.graph(line.total), fed(line.graph(), 64, 1, 1)
    opened = session(made.rewritten(), 4)
    expected = made.run(feeds)
    for _ in range(500):
        assert all(map(same_bits, opened.run(list(made.outputs), dict(feeds)), expected))


@pytest.mark.parametrize(("centered", "gated"), [(True, False), (False, True)])
def test_what_lies_between_two_attentions_is_one_node(centered: bool, gated: bool) -> None:
    line = Line()
    line.layer(40, 60, centered=centered, gated=gated)
    assert line.graph(line.total).op_types() == ["edgegen.FusedLayers"]


def test_fused_layers_have_at_most_33_matrices() -> None:
    line = Line()
    for _ in range(40):
        line.matrix(8, 8)
    assert line.graph().op_types() == ["edgegen.FusedLayers"] * 2
    assert same_as_alone(line, fed(line.graph(), 8, 1, 3))


def test_fused_layers_end_at_what_others_read() -> None:
    line = Line()
    line.norm(8)
    line.matrix(8, 8)
    between = line.value
    line.norm(8)
    line.matrix(8, 8)
    assert line.graph(between).op_types() == ["edgegen.FusedLayers"] * 2
    line.nodes.append(helper.make_node("Add", [line.value, between], ["both"]))
    line.made.append(line.value)
    line.value = "both"
    assert line.graph().op_types() == ["edgegen.FusedLayers"] * 2 + ["Add"]


def test_a_sum_that_others_read_too_is_kept() -> None:
    """The norm after it may not add to it in its place."""
    line = Line()
    line.matrix(8, 8)
    line.norm(8, skips=True)
    first = line.total
    line.matrix(8, 8)
    line.norm(8, skips=True)
    line.matrix(8, 8)
    made = line.graph(first, line.total)
    assert made.op_types() == ["edgegen.FusedLayers"] * 2
    feeds = fed(made, 8, 1, 3)
    found, expected = made.run(feeds), line.graph(*line.made).run(feeds)
    names = line.graph(*line.made).outputs
    assert all(same_bits(a, expected[names.index(n)]) for n, a in zip(made.outputs, found, strict=True))


def test_fused_layers_with_a_sum_read_before_their_end() -> None:
    """Fused layers stand where their last node stood: what reads the sum must come later."""
    line = Line()
    line.norm(8, skips=True)
    total = line.total
    line.nodes.append(helper.make_node("Add", [total, total], ["twice"]))
    line.value = line.nodes[0].output[0]
    line.matrix(8, 8)
    line.norm(8)
    line.matrix(8, 8)
    assert line.graph("twice").op_types() == ["edgegen.Norm", "Add", "edgegen.FusedLayers"]


def test_two_fused_layers_that_meet_in_a_norm() -> None:
    """It adds what two matrices give: one goes on, and takes the other's result."""
    line = Line()
    line.matrix(8, 8)
    line.total, line.value = line.value, "x"
    line.matrix(8, 8)
    line.norm(8, skips=True)
    line.matrix(8, 8)
    assert line.graph().op_types() == ["edgegen.BlockMatMul", "edgegen.FusedLayers"]
    assert same_as_alone(line, fed(line.graph(), 8, 1, 3))


def test_norms_and_activations_without_a_matrix_stay_alone() -> None:
    line = Line()
    line.norm(8)
    line.activation()
    line.norm(8)
    assert line.graph().op_types() == ["edgegen.Norm", "edgegen.Activation", "edgegen.Norm"]


def test_an_activation_at_the_end_stays_alone() -> None:
    line = Line()
    line.norm(8)
    line.matrix(8, 8)
    line.activation()
    assert line.graph().op_types() == ["edgegen.FusedLayers", "edgegen.Activation"]


def test_skip_is_repeated_along_the_first_axes() -> None:
    line = Line()
    line.norm(20, skips=True)
    line.matrix(20, 30)
    made = line.graph(line.total)
    feeds = fed(made, 20, 3, 4)
    feeds["skip"] = np.ascontiguousarray(feeds["skip"][:1])
    assert made.op_types() == ["edgegen.FusedLayers"]
    assert same_as_alone(line, feeds)


def test_fused_layers_of_no_rows_are_empty() -> None:
    line = Line()
    line.layer(20, 30)
    made = line.graph(line.total)
    assert [array.shape for array in made.run(fed(made, 20, 2, 0))] == [(2, 0, 60), (2, 0, 20)]


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"x": (1, 3, 19)}, "the last dimension of x is not what the first step takes"),
        ({"skip": (1, 3, 19)}, "skip has not the shape of what it is added to"),
        ({"skip": (2, 3, 20)}, "skip has not the shape of what it is added to"),
        ({"x": (3, 20), "skip": (3, 20)}, "what is halved is not the last axis"),
    ],
    ids=str,
)
def test_other_shapes_are_refused(shapes: dict[str, tuple[int, ...]], message: str) -> None:
    line = Line()
    line.layer(20, 30)
    made = line.graph(line.total)
    feeds = fed(made, 20, 1, 3) | {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    opened = session(made.rewritten())
    with pytest.raises(Exception, match=message):
        opened.run(list(made.outputs), feeds)
    right = fed(made, 20, 1, 3)
    assert all(map(same_bits, opened.run(list(made.outputs), right), made.run(right)))


def lying(**attributes: int | None) -> bytes:
    """A norm and a matrix in one node, with other attributes than are true; None: it is left out."""
    weights = {"weight": np.ones(8, np.float32), "codes": np.zeros((8, 1, 32), np.uint8)}
    weights |= {"scales": np.ones((8, 1), np.float32)}
    right: dict[str, Any] = {
        "steps": 2,
        "step0": 1,
        "centered0": 0,
        "skips0": 0,
        "epsilon0": EPSILON,
        "step1": 0,
        "K1": 8,
        "N1": 8,
    }
    known = right | {"bits1": 8, "block_size1": 32} | attributes
    kept = {name: value for name, value in known.items() if value is not None}
    inputs = ["x", "", "codes", "scales", *[""] * (4 * 33 - 2), "weight"]
    made = cast(Any, helper).make_node("FusedLayers", inputs, ["y"], domain="edgegen", **kept)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in ("x", "y")]
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("edgegen", 1)]
    body = helper.make_graph([made], "lying", values[:1], values[1:], tensors)
    return helper.make_model(body, ir_version=10, opset_imports=opsets).SerializeToString()


def test_valid_fused_layers_run() -> None:
    assert session(lying()).run(["y"], {"x": np.ones((2, 8), np.float32)})[0].shape == (2, 8)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"steps": 0}, "there are 1 to 64 steps"),
        ({"steps": 65}, "there are 1 to 64 steps"),
        ({"steps": -1}, "there are 1 to 64 steps"),
        ({"steps": 2**40}, "there are 1 to 64 steps"),
        ({"steps": 3}, "step2"),
        ({"steps": None}, "steps"),
        ({"step0": 4}, "there is no such step"),
        ({"step1": -1}, "there is no such step"),
        ({"step1": 2, "kind1": 9, "gate_axis1": 0}, "there is no such activation, or no such axis"),
        ({"step1": 2, "kind1": 0, "gate_axis1": 8}, "there is no such activation, or no such axis"),
        ({"step1": 2, "kind1": 0, "gate_axis1": 0}, "the steps do not fit each other"),
        ({"step1": 1, "centered1": 0, "skips1": 0, "epsilon1": 0.1}, "weights must be floats"),
        ({"K1": 9}, "the steps do not fit each other"),
        ({"K1": 40}, "codes have 256 elements"),
        ({"K1": 0}, "K and N must be positive"),
        ({"N1": 7}, "codes have 256 elements"),
        ({"bits1": None}, "bits1"),
        ({"epsilon0": None}, "epsilon0"),
    ],
    ids=str,
)
def test_a_graph_that_lies_is_refused(attributes: dict[str, Any], message: str) -> None:
    with pytest.raises(Exception, match=message):
        session(lying(**attributes))


def test_a_missing_skip_input_is_refused() -> None:
    opened = session(lying(skips0=1))
    with pytest.raises(Exception, match="skip has not the shape of what it is added to"):
        opened.run(["y"], {"x": np.ones((2, 8), np.float32)})
