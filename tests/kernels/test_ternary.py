"""Ternary matrices: the operator's definition is met to the last bit, and so it is by stock operators."""

from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from edgegen.graph.kernel_operators import with_kernels
from edgegen_export.graph.builder import GraphBuilder, Tensor
from edgegen_export.graph.matrices import linear
from edgegen_export.graph.parameters import TernaryMatrix
from tests.kernels.material import Array, Weights, graph_of, instruction_sets, run, same_bits, session_of

SEEDS = st.integers(0, 2**32 - 1)
LEAST, STEPS = np.float32(1e-5), np.float32(127)


def ternary(rng: np.random.Generator, columns: int, rows: int, *, bias: bool = False) -> Weights:
    """Random codes, those included that no export writes."""
    return Weights(
        columns,
        rows,
        4,
        2,
        rng.integers(0, 256, (rows, columns // 4), np.uint8),
        rng.uniform(0.001, 0.02, rows).astype(np.float32),
        bias=rng.normal(size=rows).astype(np.float32) if bias else None,
    )


def definition(weights: Weights, x: Array) -> Array:
    """Compute kernels/matmul/matrix.h's formula, operation by operation."""
    apart = np.stack([weights.codes >> shift & 3 for shift in (0, 2, 4, 6)], -1)
    values = apart.reshape(weights.rows, -1).astype(np.int64) - 2
    most = np.abs(x).max(-1, keepdims=True)
    with np.errstate(all="ignore"):
        factor = np.where(np.isfinite(most), STEPS / np.maximum(most, LEAST), np.float32(np.nan))
        rounded = np.where(np.isfinite(most), np.rint(x * factor), 0).astype(np.int64)
        y = (rounded @ values.T).astype(np.float32) / factor * weights.scales
    return y if weights.bias is None else y + weights.bias


def everywhere(weights: Weights, x: Array, *threads: int) -> None:
    expected, graph = definition(weights, x), graph_of(weights)
    for isa in instruction_sets():
        for count in threads or (1,):
            assert same_bits(run(session_of(graph, isa=isa, threads=count), x), expected), (isa, count)


@st.composite
def matrices(draw: st.DrawFn) -> Weights:
    return ternary(
        np.random.default_rng(draw(SEEDS)),
        4 * draw(st.one_of(st.integers(1, 150), st.sampled_from([256, 640, 641]))),
        draw(st.integers(1, 60)),
        bias=draw(st.booleans()),
    )


@settings(max_examples=60, deadline=None)
@given(weights=matrices(), rows=st.integers(1, 14), seed=SEEDS)
def test_every_instruction_set_computes_what_the_definition_says(weights: Weights, rows: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    everywhere(weights, (rng.normal(size=(rows, weights.columns)) * 10 ** rng.uniform(-8, 8)).astype(np.float32))


@settings(max_examples=30, deadline=None)
@given(weights=matrices(), rows=st.integers(1, 9), seed=SEEDS, share=st.sampled_from([0.005, 0.3]))
def test_special_values_stay_in_their_rows(weights: Weights, rows: int, seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, weights.columns)).astype(np.float32)
    there = rng.random(x.shape) < share
    special = np.array([np.nan, np.inf, -np.inf, 1e-45, 1e-5, -9e-6, 3e38, 0.0, -0.0], np.float32)
    x[there] = rng.choice(special, there.sum())
    everywhere(weights, x)


def test_largest_sums_are_exact() -> None:
    """Of codes of one sign, by inputs of the largest size."""
    weights = ternary(np.random.default_rng(0), 8192, 9)
    for code in (0, 0b01010101, 0xFF):
        weights.codes[...] = code
        for sign in (-1, 1):
            everywhere(weights, np.full((5, 8192), sign, np.float32))


@pytest.mark.parametrize("rows", [1, 5, 40])
def test_threads_chunks_and_batches_change_no_bit(rows: int) -> None:
    rng = np.random.default_rng(rows)
    weights = ternary(rng, 320, 1100, bias=True)
    x = rng.normal(size=(rows, 320)).astype(np.float32)
    everywhere(weights, x, 1, 2, 4)
    session = session_of(graph_of(weights), threads=2)
    whole = run(session, x)
    for size in (1, 3, 7):
        assert same_bits(np.concatenate([run(session, x[i : i + size]) for i in range(0, rows, size)]), whole)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"block_size": 16}, "block_size must be 32, or 4 and divide K"),
        ({"K": 65}, "block_size must be 32, or 4 and divide K"),
        ({"K": (1 << 22) + 4}, "K, which is 4194304 at most"),
        ({"K": 68}, "codes have"),
        ({"N": 21}, "codes have"),
    ],
)
def test_attributes_that_do_not_fit(attributes: dict[str, int], message: str) -> None:
    with pytest.raises(Exception, match=message):
        session_of(graph_of(ternary(np.random.default_rng(0), 64, 20), attributes=attributes))


def exported(weights: Weights) -> bytes:
    """The nodes that an export writes, the weights in the graph."""
    g, arrays = GraphBuilder("ternary"), {"codes": weights.codes, "scales": weights.scales}
    arrays |= {"bias": weights.bias} if weights.bias is not None else {}
    found = [Tensor(name, array.dtype.name, array.shape, 0) for name, array in arrays.items()]
    x = g.input("x", "float32", ["tokens", weights.columns])
    matrix = TernaryMatrix(found[0], found[1], weights.rows)
    g.output("y", linear(g, matrix, x, *found[2:]), "float32", ["tokens", weights.rows])
    model = g.model()
    model.graph.initializer.extend(numpy_helper.from_array(array, name) for name, array in arrays.items())
    return model.SerializeToString()


@pytest.mark.parametrize("columns", [4, 64, 100, 2560, 6912])
@pytest.mark.parametrize("rows", [1, 4, 33])
@pytest.mark.parametrize("bias", [False, True])
def test_stock_operators_give_the_same_bits(columns: int, rows: int, bias: bool) -> None:
    rng = np.random.default_rng(columns + rows)
    weights = ternary(rng, columns, 70, bias=bias)
    graph, x = exported(weights), rng.normal(size=(rows, columns)).astype(np.float32)
    ours = with_kernels(graph)
    assert [node.op_type for node in onnx.load_from_string(ours).graph.node] == ["BlockMatMul"]
    stock: Any = ort.InferenceSession(graph, providers=["CPUExecutionProvider"])
    expected = definition(weights, x)
    assert same_bits(run(stock, x), expected)
    assert same_bits(run(session_of(ours), x), expected)
