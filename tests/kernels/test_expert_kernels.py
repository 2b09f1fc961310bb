"""Our operator for mixtures of experts: its definition, every instruction set, any batch, and graphs that lie."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from edgegen.graph.kernel_operators import inexact_operators, with_kernels
from tests.kernels.material import (
    Array,
    Weights,
    fma,
    instruction_sets,
    random_weights,
    reference,
    same_bits,
    session_of,
)
from tests.kernels.stock import needs_kernels

pytestmark = needs_kernels

SEEDS = st.integers(0, 2**32 - 1)


@dataclass(frozen=True)
class Layer:
    """Experts with their matrices, and how many of them a token takes."""

    per_token: int
    first: Sequence[Weights]
    second: Sequence[Weights]
    alpha: float = 1.0
    offset: float = 0.0
    limit: float = 1e30

    @property
    def width(self) -> int:
        return self.first[0].columns

    def scores(self, rng: np.random.Generator, tokens: int) -> Array:
        return rng.normal(size=(tokens, len(self.first))).astype(np.float32)

    def x(self, rng: np.random.Generator, tokens: int) -> Array:
        return rng.normal(size=(tokens, self.width)).astype(np.float32)


def layer_of(
    rng: np.random.Generator, experts: int, per_token: int, width: int, inner: int, bits: int, block: int, **others: Any
) -> Layer:
    bias = bool(rng.integers(2))

    def matrices(columns: int, rows: int) -> list[Weights]:
        of_all = partial(random_weights, rng, columns, rows, block=block, bits=bits, scale_type="float32", bias=bias)
        return [of_all() for _ in range(experts)]

    return Layer(per_token, matrices(width, 2 * inner), matrices(inner, width), **others)


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    experts = draw(st.integers(1, 12))
    block = draw(st.sampled_from([32, 64]))
    clipped = draw(st.booleans())
    return layer_of(
        np.random.default_rng(draw(SEEDS)),
        experts,
        draw(st.integers(1, experts)),
        block * draw(st.integers(1, 5)),
        block * draw(st.integers(1, 3)),
        draw(st.sampled_from([4, 8])),
        block,
        **({"alpha": 1.702, "offset": 1.0, "limit": 2.0} if clipped else {}),
    )


def stock_graph(layer: Layer, **changed: Any) -> onnx.ModelProto:
    """``QMoE``, as an export has it; ``changed`` attributes take the place of the right ones, None of none."""
    tensors, inputs = list[Any](), ["x", "scores"]
    for name, matrices in (("first", layer.first), ("second", layer.second)):
        one = matrices[0]
        codes = np.stack([matrix.codes.reshape(one.rows, -1) for matrix in matrices])
        parts: dict[str, Array | None] = {"codes": codes, "scales": np.stack([m.wide_scales() for m in matrices])}
        parts["bias"] = None if one.bias is None else np.stack([cast(Array, matrix.bias) for matrix in matrices])
        for part, array in parts.items():
            inputs.append(f"{name}.{part}" if array is not None else "")
            if array is not None:
                tensors.append(numpy_helper.from_array(array, f"{name}.{part}"))
    attributes: dict[str, Any] = {
        "k": layer.per_token,
        "normalize_routing_weights": 1,
        "activation_type": "swiglu",
        "swiglu_fusion": 1,
        "activation_alpha": layer.alpha,
        "activation_beta": layer.offset,
        "swiglu_limit": layer.limit,
        "expert_weight_bits": layer.first[0].bits,
        "block_size": layer.first[0].block,
        "accuracy_level": 4,
    }
    known = {name: value for name, value in (attributes | changed).items() if value is not None}
    node = helper.make_node("QMoE", inputs, ["y"], domain="com.microsoft", **known)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [None, None]) for name in ("x", "scores", "y")]
    graph = helper.make_graph([node], "experts", values[:2], values[2:], tensors)
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, ir_version=10, opset_imports=opsets)


def graph_of(layer: Layer) -> bytes:
    """The graph that an export's becomes."""
    graph = with_kernels(stock_graph(layer).SerializeToString())
    assert inexact_operators(graph) == set()
    return graph


def run(session: Any, x: Array, scores: Array) -> Array:
    return session.run(None, {"x": x, "scores": scores})[0]


def expected(layer: Layer, x: Array, scores: Array) -> Array:
    """Matrices to the last bit, softmax and activation in float64, rounded once."""
    y = np.zeros_like(x)
    for token, of_token in enumerate(scores.astype(np.float64)):
        chosen: list[int] = np.argsort(-of_token, kind="stable")[: layer.per_token].tolist()
        weights = np.exp(of_token[chosen] - of_token[chosen].max())
        for expert, weight in zip(chosen, weights / weights.sum(), strict=True):
            wide = reference(layer.first[expert], x[token : token + 1]).astype(np.float64)
            gate = np.minimum(wide[:, ::2], layer.limit)
            up = np.clip(wide[:, 1::2], -layer.limit, layer.limit)
            inner = (up + layer.offset) * gate / (1 + np.exp(-layer.alpha * gate))
            given_ = reference(layer.second[expert], inner.astype(np.float32))
            y[token] = fma(np.full_like(y[token], weight), given_[0], y[token])
    return y


@settings(max_examples=25, deadline=None, derandomize=True)  # a step of rounding may be more than is allowed
@given(layer=layers(), tokens=st.one_of(st.integers(1, 9), st.integers(1, 60)), seed=SEEDS)
def test_experts_compute_their_definition(layer: Layer, tokens: int, seed: int) -> None:
    """Rounding an activation to 8 bits may go the other way by one step, where float64 is nearer to the middle."""
    rng = np.random.default_rng(seed)
    x, scores = layer.x(rng, tokens), layer.scores(rng, tokens)
    found, exact = run(session_of(graph_of(layer)), x, scores), expected(layer, x, scores)
    assert np.abs(found - exact).max() <= 2e-3 * np.abs(exact).max() + 1e-6


@settings(max_examples=40, deadline=None)
@given(layer=layers(), tokens=st.one_of(st.integers(1, 9), st.integers(1, 60)), seed=SEEDS)
def test_instruction_sets_threads_and_batches_change_no_bit(layer: Layer, tokens: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    x, scores, graph = layer.x(rng, tokens), layer.scores(rng, tokens), graph_of(layer)
    whole = run(session_of(graph), x, scores)
    for isa in instruction_sets():
        for threads in (1, 2):
            assert same_bits(run(session_of(graph, isa=isa, threads=threads), x, scores), whole)
    alone, order = session_of(graph), rng.permutation(tokens)
    for token in order[:5]:
        assert same_bits(run(alone, x[token : token + 1], scores[token : token + 1])[0], whole[token])
    assert same_bits(run(alone, x[order], scores[order]), whole[order])


@pytest.mark.parametrize("bits", [4, 8])
def test_experts_are_as_near_as_the_stock_operator(bits: int) -> None:
    rng = np.random.default_rng(bits)
    layer = layer_of(rng, 8, 3, 128, 64, bits, 64)
    x, scores = layer.x(rng, 20), layer.scores(rng, 20)
    ours = run(session_of(graph_of(layer)), x, scores)
    stock = run(session_of(stock_graph(layer).SerializeToString()), x, scores)
    assert np.abs(ours - stock).max() <= 0.03 * np.abs(stock).max()


def test_of_equal_scores_the_first_experts_are_taken() -> None:
    rng = np.random.default_rng(0)
    layer = layer_of(rng, 5, 2, 32, 32, 8, 32)
    x = layer.x(rng, 1)
    session = session_of(graph_of(layer))
    tied, apart = np.zeros((1, 5), np.float32), np.array([[0, 0, -9, -9, -9]], np.float32)
    assert same_bits(run(session, x, tied), run(session, x, apart))


def test_experts_that_are_never_chosen_count_nothing() -> None:
    """As exports say it of those that a bias keeps out: their scores are a great negative number, or infinite."""
    rng = np.random.default_rng(1)
    layer = layer_of(rng, 4, 3, 32, 32, 8, 32)
    x, session = layer.x(rng, 2), session_of(graph_of(layer))
    few = np.array([[1, 2, -1e30, -1e30], [1, 2, -np.inf, -np.inf]], np.float32)
    found = run(session, x, few)
    assert np.abs(found - expected(layer, x, np.maximum(few, -500))).max() < 2e-3 * np.abs(found).max()


def test_what_is_no_number_is_seen_in_its_own_token_only() -> None:
    rng = np.random.default_rng(2)
    layer = layer_of(rng, 6, 2, 64, 32, 4, 32)
    x, scores, session = layer.x(rng, 3), layer.scores(rng, 3), session_of(graph_of(layer))
    right = run(session, x, scores)
    lost = scores.copy()
    lost[1, 4] = np.nan
    found = run(session, x, lost)
    assert np.isnan(found[1]).all()
    assert same_bits(found[[0, 2]], right[[0, 2]])


def test_no_tokens_give_nothing() -> None:
    layer = layer_of(np.random.default_rng(3), 2, 1, 32, 32, 8, 32)
    found = run(session_of(graph_of(layer)), np.zeros((0, 32), np.float32), np.zeros((0, 2), np.float32))
    assert found.shape == (0, 32)


@pytest.mark.parametrize(
    "changed",
    [
        {"normalize_routing_weights": 0},
        {"swiglu_fusion": 2},
        {"activation_type": "silu"},
        {"activation_alpha": None},
        {"use_sparse_mixer": 1},
        {"block_size": 16},
        {"a_new_one": 3},
    ],
    ids=str,
)
def test_what_it_does_not_know_stays_with_the_stock_operator(changed: Mapping[str, Any]) -> None:
    layer = layer_of(np.random.default_rng(4), 4, 2, 64, 32, 8, 32)
    graph = with_kernels(stock_graph(layer, **changed).SerializeToString())
    assert inexact_operators(graph) == {b"QMoE"}


def test_floats_as_activations_stay_with_the_stock_operator() -> None:
    layer = layer_of(np.random.default_rng(4), 4, 2, 64, 32, 4, 32)
    graph = with_kernels(stock_graph(layer, accuracy_level=0).SerializeToString())
    assert inexact_operators(graph) == {b"QMoE"}


RIGHT = layer_of(np.random.default_rng(5), 3, 2, 64, 32, 8, 32)


def lying(**changed: int) -> bytes:
    """The rewritten graph with other attributes."""
    model = onnx.load_model_from_string(graph_of(RIGHT))
    for attribute in model.graph.node[0].attribute:
        if attribute.name in changed:
            attribute.i = changed[attribute.name]
    return model.SerializeToString()


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"experts": 0}, "experts must be 1 to 65536"),
        ({"experts": -1}, "experts must be 1 to 65536"),
        ({"experts": 2**40}, "experts must be 1 to 65536"),
        ({"k": 0}, "k at most as many"),
        ({"k": 4}, "k at most as many"),
        ({"experts": 2}, "elements of type"),
        ({"experts": 4}, "elements of type"),
        ({"K0": 32}, "elements of type"),
        ({"K1": 64}, "elements of type"),
        ({"N1": 2**31, "experts": 2**16, "K1": 2**31}, "too many matrices|elements of type"),
        ({"bits1": 5}, "bits 8 or 4"),
        ({"block_size0": 16}, "block_size 32 or 64"),
    ],
    ids=str,
)
def test_attributes_of_other_experts(changed: Mapping[str, int], said: str) -> None:
    with pytest.raises(Exception, match=said):
        session_of(lying(**changed))


def test_matrices_that_do_not_follow_one_another() -> None:
    wrong = Layer(
        2, RIGHT.first, [random_weights(np.random.default_rng(6), 64, 64, scale_type="float32") for _ in range(3)]
    )
    with pytest.raises(Exception, match="must give twice what the second takes"):
        session_of(with_kernels(stock_graph(wrong).SerializeToString()))


@pytest.mark.parametrize(
    ("x", "scores", "said"),
    [
        ((2, 63), (2, 3), "the last dimension of x is not K"),
        ((2, 64), (2, 2), "an element per token and expert"),
        ((2, 64), (3, 3), "an element per token and expert"),
        ((2, 64), (1, 6), "an element per token and expert"),
    ],
)
def test_inputs_of_other_shapes(x: tuple[int, int], scores: tuple[int, int], said: str) -> None:
    session = session_of(graph_of(RIGHT))
    with pytest.raises(Exception, match=said):
        run(session, np.zeros(x, np.float32), np.zeros(scores, np.float32))
