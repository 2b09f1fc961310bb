"""Our operator for gated delta nets: their formula, one result on every instruction set and under every cut, and what
an export writes for them."""

from dataclasses import dataclass
from typing import Any, Literal

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
from edgegen_export.graph.gated_delta_net import DeltaRule
from tests.kernels.material import Array, instruction_sets, same_bits, session_of
from tests.kernels.stock import needs_kernels

pytestmark = needs_kernels

EPS = 1e-6


@dataclass(frozen=True)
class Net:
    """Sizes of a net, and what stands around its recurrence."""

    q_heads: int = 2
    heads: int = 4
    keys: int = 16
    values: int = 24
    by_key: bool = False
    gate: Literal["silu", "sigmoid"] = "silu"

    def exported(self) -> bytes:
        """The nodes that an export writes."""
        g, values = GraphBuilder("net"), self.heads * self.values
        wide = {"q": self.q_heads * self.keys, "k": self.q_heads * self.keys, "v": values, "z": values}
        wide |= {"decay": self.heads * (self.keys if self.by_key else 1), "beta": self.heads}
        x = {name: g.input(name, "float32", ["batch", "tokens", size]) for name, size in wide.items()}
        state = FixedState(0, "past", "present", (self.heads, self.keys, self.values))
        weight = g.weight(Tensor("norm", "float32", (values,), 0, 0))
        rule = DeltaRule(self.q_heads, state, EPS, self.gate)
        y = rule.read(g, [x[name] for name in "qkv"], x["decay"], x["beta"], weight, x["z"])
        g.output("y", y, "float32", ["batch", "tokens", values])
        model = g.model()
        model.graph.initializer.append(numpy_helper.from_array(self.weight, "norm"))
        return model.SerializeToString()

    @property
    def weight(self) -> Array:
        return np.random.default_rng(5).uniform(0.5, 1.5, self.heads * self.values).astype(np.float32)

    def feeds(self, rng: np.random.Generator, rows: int, tokens: int) -> dict[str, Array]:
        def normal(*shape: int) -> Array:
            return rng.normal(size=shape).astype(np.float32)

        decays = self.heads * (self.keys if self.by_key else 1)
        return {
            "q": normal(rows, tokens, self.q_heads * self.keys),
            "k": normal(rows, tokens, self.q_heads * self.keys),
            "v": normal(rows, tokens, self.heads * self.values),
            "z": normal(rows, tokens, self.heads * self.values),
            "decay": -rng.uniform(0, 2, (rows, tokens, decays)).astype(np.float32),
            "beta": rng.uniform(0, 1, (rows, tokens, self.heads)).astype(np.float32),
            "past": normal(rows, self.heads, self.keys, self.values),
        }

    def expected(self, feeds: dict[str, Array]) -> tuple[Array, Array]:
        """The formula in float64."""
        wide = {name: array.astype(np.float64) for name, array in feeds.items()}
        rows, tokens, _ = feeds["v"].shape
        of_each = self.heads // self.q_heads

        def unit(x: Array) -> Array:
            x = x.reshape(rows, tokens, self.q_heads, self.keys)
            return np.repeat(x / np.sqrt((x**2).sum(-1, keepdims=True) + 1e-6), of_each, 2)

        q, k = unit(wide["q"]) * self.keys**-0.5, unit(wide["k"])
        v = wide["v"].reshape(rows, tokens, self.heads, self.values)
        decay = np.exp(wide["decay"].reshape(rows, tokens, self.heads, self.keys if self.by_key else 1))
        state, y = wide["past"], np.empty_like(v)
        for t in range(tokens):
            state = state * decay[:, t, :, :, None]
            read = np.einsum("bhk,bhkv->bhv", k[:, t], state)
            state = state + np.einsum("bhk,bhv->bhkv", k[:, t], wide["beta"][:, t, :, None] * (v[:, t] - read))
            y[:, t] = np.einsum("bhk,bhkv->bhv", q[:, t], state)
        y = y / np.sqrt((y**2).mean(-1, keepdims=True) + EPS)
        opening = 1 / (1 + np.exp(-wide["z"]))
        opening = opening * wide["z"] if self.gate == "silu" else opening
        return y.reshape(rows, tokens, self.heads * self.values) * self.weight * opening, state


NETS = [
    Net(),
    Net(gate="sigmoid", by_key=True, q_heads=4),
    Net(q_heads=1, heads=3, keys=5, values=7),
    Net(q_heads=1, heads=2, keys=64, values=150),
]


def run(session: Any, feeds: dict[str, Array]) -> tuple[Array, Array]:
    known = {one.name for one in session.get_inputs()}
    found = session.run(None, {name: array for name, array in feeds.items() if name in known})
    by_name = dict(zip([one.name for one in session.get_outputs()], found, strict=True))
    return by_name["y"], by_name["present"]


def close(found: Array, expected: Array) -> bool:
    return bool(np.abs(found - expected).max(initial=0) <= 2e-5 * max(1, np.abs(expected).max(initial=0)))


@pytest.mark.parametrize("net", NETS, ids=str)
@pytest.mark.parametrize("tokens", [1, 9])
def test_an_export_becomes_one_operator_that_computes_the_formula(net: Net, tokens: int) -> None:
    graph, rng = net.exported(), np.random.default_rng(tokens)
    ours = with_kernels(graph)
    assert [node.op_type for node in onnx.load_from_string(ours).graph.node] == ["GatedDeltaRule"]
    assert not inexact_operators(ours)
    feeds = net.feeds(rng, 2, tokens)
    expected = net.expected(feeds)
    for found in (run(session_of(ours), feeds), run(ort.InferenceSession(graph), feeds)):
        assert all(close(one, other) for one, other in zip(found, expected, strict=True))


@st.composite
def nets(draw: st.DrawFn) -> Net:
    q_heads, of_each = draw(st.integers(1, 3)), draw(st.integers(1, 3))
    sizes = draw(st.integers(1, 70)), draw(st.integers(1, 150))
    return Net(q_heads, q_heads * of_each, *sizes, draw(st.booleans()), draw(st.sampled_from(["silu", "sigmoid"])))


@settings(max_examples=25, deadline=None)
@given(
    net=nets(),
    rows=st.integers(1, 2),
    tokens=st.integers(0, 7),
    threads=st.sampled_from([1, 3]),
    seed=st.integers(0, 2**32 - 1),
)
def test_every_instruction_set_gives_the_same_bits(net: Net, rows: int, tokens: int, threads: int, seed: int) -> None:
    graph, feeds = with_kernels(net.exported()), net.feeds(np.random.default_rng(seed), rows, tokens)
    first, *others = (run(session_of(graph, isa=isa, threads=threads), feeds) for isa in instruction_sets())
    assert all(close(one, other) for one, other in zip(first, net.expected(feeds), strict=True))
    assert all(same_bits(one, other) for found in others for one, other in zip(first, found, strict=True))


@pytest.mark.parametrize("net", NETS, ids=str)
def test_a_text_may_be_cut_anywhere_and_keep_its_state_in_one_place(net: Net) -> None:
    session = session_of(with_kernels(net.exported()), threads=2)
    feeds = net.feeds(np.random.default_rng(1), 1, 13)
    whole, last = run(session, feeds)
    for size in (1, 2, 5):
        value: Any = ort.OrtValue.ortvalue_from_numpy(feeds["past"].copy())
        parts = list[Array]()
        for at in range(0, 13, size):
            io = session.io_binding()
            for one in session.get_inputs():
                if one.name != "past":
                    io.bind_cpu_input(one.name, np.ascontiguousarray(feeds[one.name][:, at : at + size]))
            io.bind_ortvalue_input("past", value)
            io.bind_ortvalue_output("present", value)
            io.bind_output("y")
            session.run_with_iobinding(io)
            names = [one.name for one in session.get_outputs()]
            parts.append(dict(zip(names, io.copy_outputs_to_cpu(), strict=True))["y"])
        assert same_bits(np.concatenate(parts, 1), whole)
        assert same_bits(value.numpy(), last)


def graph_of(norms: int = 8, **changed: int | float) -> bytes:
    """Of 2 heads for each of 2 of keys, of 4 keys and 3 values, but for what ``changed`` says."""
    known: dict[str, Any] = {"q_heads": 2, "heads": 4, "keys": 4, "values": 3, "activation": 0}
    known |= {"scale": 1.0, "q_epsilon": 0.1, "epsilon": 0.1, **changed}
    names = ["q", "k", "v", "past", "decay", "beta"]
    inputs = [*names, "q_norm", "norm"]
    node = helper.make_node("GatedDeltaRule", inputs, ["y", "present"], domain="edgegen", **known)
    ranks = [4 if name in ("past", "present") else 3 for name in [*names, "y", "present"]]
    values = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [None] * rank)
        for name, rank in zip([*names, "y", "present"], ranks, strict=True)
    ]
    weights = {"q_norm": np.ones(4, np.float32), "norm": np.ones(norms, np.float32)}
    tensors = [numpy_helper.from_array(array, name) for name, array in weights.items()]
    graph = helper.make_graph([node], "net", values[:6], values[6:], tensors)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("edgegen", 1)]
    return helper.make_model(graph, ir_version=10, opset_imports=opsets).SerializeToString()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"heads": 3}, "no such heads"),
        ({"q_heads": 0}, "no such heads"),
        ({"keys": 1025}, "no such heads"),
        ({"activation": 7}, "no such heads"),
        ({"norms": 11}, "a weight for each channel"),
        ({"keys": 5, "norms": 12}, "a weight for each channel"),
    ],
)
def test_attributes_that_do_not_fit(changed: dict[str, int], message: str) -> None:
    with pytest.raises(Exception, match=message):
        session_of(graph_of(**changed))


SHAPES = {"q": (1, 2, 8), "k": (1, 2, 8), "v": (1, 2, 12), "past": (1, 4, 4, 3), "decay": (1, 2, 4), "beta": (1, 2, 4)}


@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("axis", [0, -1])
def test_shapes_that_do_not_fit(name: str, axis: int) -> None:
    session = session_of(graph_of(norms=12))
    feeds = {name: np.zeros(shape, np.float32) for name, shape in SHAPES.items()}
    run(session, feeds)
    shape = [*SHAPES[name]]
    shape[axis] += 1
    with pytest.raises(Exception, match="do not have shapes that fit"):
        run(session, feeds | {name: np.zeros(shape, np.float32)})
