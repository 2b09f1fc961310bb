"""Our operator for short convolutions: the bits of the stock operators that an export writes, every instruction set,
any cut of a text, and graphs that lie."""

from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from edgegen.bundle.layer_state import FixedState
from edgegen.graph.kernel_operators import inexact_operators, with_kernels
from edgegen_export.graph.builder import GraphBuilder, Tensor
from edgegen_export.graph.layer_graph import ModelGraph
from edgegen_export.graph.short_conv import convolved
from tests.kernels.material import Array, instruction_sets, same_bits, session_of
from tests.kernels.stock import needs_kernels

pytestmark = needs_kernels

SEEDS = st.integers(0, 2**32 - 1)


@dataclass(frozen=True)
class Fed:
    """Parameters of one convolution."""

    weight: Array
    offset: Array | None

    def vector(self, name: str) -> Tensor:
        assert name == "kernel.weight"
        return Tensor("kernel", "float32", self.weight.shape, 0, 0)

    def bias(self, *modules: str) -> Tensor | None:
        return None if self.offset is None else Tensor("bias", "float32", self.offset.shape, 0, 0)


def exported(weight: Array, bias: Array | None, *, activated: bool) -> bytes:
    """The nodes that an export writes for a kernel [d, 1, w], the weights in the graph."""
    d, _, w = weight.shape
    g, params, nowhere = GraphBuilder("convolution"), cast(Any, Fed(weight, bias)), cast(Any, None)
    x = g.input("x", "float32", ["batch", "tokens", d])
    state = FixedState(0, "past", "present", (w - 1, d))
    y = convolved(ModelGraph(g, params, nowhere), "kernel", x, state, activated=activated)
    g.output("y", y, "float32", ["batch", "tokens", d])
    model = g.model()
    model.graph.initializer.append(numpy_helper.from_array(weight, "kernel"))
    if bias is not None:
        model.graph.initializer.append(numpy_helper.from_array(bias, "bias"))
    return model.SerializeToString()


def run(session: Any, x: Array, past: Array) -> tuple[Array, Array]:
    found = dict(
        zip([one.name for one in session.get_outputs()], session.run(None, {"x": x, "past": past}), strict=True)
    )
    return found["y"], found["present"]


def weights(rng: np.random.Generator, channels: int, width: int, *, bias: bool) -> tuple[Array, Array | None]:
    kernel = rng.normal(size=(channels, 1, width)).astype(np.float32)
    return kernel, rng.normal(size=channels).astype(np.float32) if bias else None


@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 3),
    tokens=st.integers(0, 12),
    channels=st.one_of(st.integers(1, 40), st.sampled_from([130, 6144])),
    width=st.integers(2, 6),
    bias=st.booleans(),
    threads=st.sampled_from([1, 3]),
    seed=SEEDS,
)
def test_the_bits_are_those_of_the_stock_operators(
    rows: int, tokens: int, channels: int, width: int, bias: bool, threads: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    graph = exported(*weights(rng, channels, width, bias=bias), activated=False)
    ours = with_kernels(graph)
    assert [node.op_type for node in onnx.load_from_string(ours).graph.node] == ["CausalConv"]
    assert not inexact_operators(ours)
    x = rng.normal(size=(rows, tokens, channels)).astype(np.float32)
    past = rng.normal(size=(rows, width - 1, channels)).astype(np.float32)
    stock: Any = ort.InferenceSession(graph, providers=["CPUExecutionProvider"])
    expected = run(stock, x, past)
    for isa in instruction_sets():
        found = run(session_of(ours, isa=isa, threads=threads), x, past)
        assert all(same_bits(one, other) for one, other in zip(found, expected, strict=True)), isa


@pytest.mark.parametrize("bias", [False, True])
def test_an_activation_after_it_is_part_of_it(bias: bool) -> None:
    rng = np.random.default_rng(0)
    kernel, offset = weights(rng, 70, 4, bias=bias)
    ours = with_kernels(exported(kernel, offset, activated=True))
    assert [node.op_type for node in onnx.load_from_string(ours).graph.node] == ["CausalConv"]
    x, past = (rng.normal(size=(2, count, 70)).astype(np.float32) for count in (9, 3))
    y, present = run(session_of(ours), x, past)
    seen = np.concatenate([past, x], 1).astype(np.float64)
    plain = sum(seen[:, k : k + 9] * kernel[:, 0, k] for k in range(4)) + (0 if offset is None else offset)
    np.testing.assert_allclose(y, plain / (1 + np.exp(-plain)), atol=1e-5)
    assert same_bits(present, np.ascontiguousarray(seen[:, -3:], np.float32))


def test_a_text_may_be_cut_anywhere_and_keep_its_state_in_one_place() -> None:
    rng = np.random.default_rng(1)
    kernel, offset = weights(rng, 300, 4, bias=True)
    session = session_of(with_kernels(exported(kernel, offset, activated=True)), threads=2)
    x = rng.normal(size=(1, 23, 300)).astype(np.float32)
    whole, last = run(session, x, np.zeros((1, 3, 300), np.float32))
    for size in (1, 2, 3, 7):
        state = np.zeros((1, 3, 300), np.float32)
        value: Any = ort.OrtValue.ortvalue_from_numpy(state)
        parts = list[Array]()
        for at in range(0, 23, size):
            io = session.io_binding()
            io.bind_cpu_input("x", np.ascontiguousarray(x[:, at : at + size]))
            io.bind_ortvalue_input("past", value)
            io.bind_ortvalue_output("present", value)
            io.bind_output("y")
            session.run_with_iobinding(io)
            parts.append(
                dict(zip([one.name for one in session.get_outputs()], io.copy_outputs_to_cpu(), strict=True))["y"]
            )
        assert same_bits(np.concatenate(parts, 1), whole)
        assert same_bits(value.numpy(), last)


def graph_of(**attributes: int) -> bytes:
    """Of 5 channels and 3 taps, but for what ``attributes`` say."""
    known: dict[str, Any] = {"channels": 5, "width": 3, "activation": 0, **attributes}
    node = helper.make_node("CausalConv", ["x", "past", "kernel"], ["y", "present"], domain="edgegen", **known)
    values = [helper.make_tensor_value_info(n, TensorProto.FLOAT, [None] * 3) for n in ("x", "past", "y", "present")]
    kernel = numpy_helper.from_array(np.ones(15, np.float32), "kernel")
    graph = helper.make_graph([node], "convolution", values[:2], values[2:], [kernel])
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("edgegen", 1)]
    return helper.make_model(graph, ir_version=10, opset_imports=opsets).SerializeToString()


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"width": 1}, "width 2 to 64"),
        ({"width": 65}, "width 2 to 64"),
        ({"channels": 0}, "channels must be"),
        ({"activation": 9}, "of a known kind"),
        ({"channels": 6}, "weights have"),
    ],
)
def test_attributes_that_do_not_fit(attributes: dict[str, int], message: str) -> None:
    with pytest.raises(Exception, match=message):
        session_of(graph_of(**attributes))


@pytest.mark.parametrize(("x", "past"), [((1, 2, 4), (1, 2, 5)), ((1, 2, 5), (1, 3, 5)), ((2, 2, 5), (1, 2, 5))])
def test_shapes_that_do_not_fit(x: tuple[int, ...], past: tuple[int, ...]) -> None:
    with pytest.raises(Exception, match="do not have shapes that fit"):
        run(session_of(graph_of()), np.zeros(x, np.float32), np.zeros(past, np.float32))
