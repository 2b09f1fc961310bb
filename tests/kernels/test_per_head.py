"""Our operator for a matrix of each head: its definition, every instruction set, any batch, and what an export writes
for such matrices."""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import numpy_helper

from edgegen.graph.kernel_operators import inexact_operators, with_kernels
from edgegen_export.graph.builder import GraphBuilder, Tensor
from edgegen_export.graph.matrices import of_each_head
from edgegen_export.graph.parameters import BlockHeads
from tests.kernels.material import (
    SCALE_TYPES,
    Array,
    Weights,
    graph_of,
    instruction_sets,
    random_weights,
    reference,
    run,
    same_bits,
    session_of,
)
from tests.kernels.stock import needs_kernels

pytestmark = needs_kernels

SEEDS = st.integers(0, 2**32 - 1)


@dataclass(frozen=True)
class Heads:
    """A matrix of each head, all of one size."""

    matrices: list[Weights]

    @property
    def columns(self) -> int:
        return self.matrices[0].columns

    def together(self) -> Weights:
        """All matrices, one after the other, as the operator takes them."""
        one = self.matrices[0]
        parts = {
            name: np.concatenate([getattr(matrix, name) for matrix in self.matrices])
            for name in ("codes", "scales", "zeros", "bias")
            if getattr(one, name) is not None
        }
        return Weights(one.columns, one.rows, one.block, one.bits, **parts)

    def x(self, rng: np.random.Generator, tokens: int) -> Array:
        return rng.normal(size=(tokens, len(self.matrices), self.columns)).astype(np.float32)

    def expected(self, x: Array) -> Array:
        return np.stack([reference(matrix, x[:, head]) for head, matrix in enumerate(self.matrices)], 1)

    def graph(self, **changed: int) -> bytes:
        attributes = {"heads": len(self.matrices)} | changed
        return graph_of(self.together(), operator="BlockMatMulPerHead", attributes=attributes, rank=3)


def heads_of(rng: np.random.Generator, count: int, columns: int, rows: int, block: int = 64, **others: Any) -> Heads:
    return Heads([random_weights(rng, columns, rows, block=block, **others) for _ in range(count)])


@st.composite
def heads(draw: st.DrawFn) -> Heads:
    return heads_of(
        np.random.default_rng(draw(SEEDS)),
        draw(st.integers(1, 9)),
        draw(st.integers(1, 300)),
        draw(st.integers(1, 80)),
        draw(st.sampled_from([32, 64])),
        bits=draw(st.sampled_from([4, 8])),
        scale_type=draw(st.sampled_from(SCALE_TYPES)),
        zeros=draw(st.booleans()),
        bias=draw(st.booleans()),
    )


@settings(max_examples=40, deadline=None)
@given(own=heads(), tokens=st.integers(1, 20), threads=st.sampled_from([1, 3]), seed=SEEDS)
def test_every_instruction_set_multiplies_each_head_by_its_matrix(
    own: Heads, tokens: int, threads: int, seed: int
) -> None:
    x, graph = own.x(np.random.default_rng(seed), tokens), own.graph()
    expected = own.expected(x)
    for isa in instruction_sets():
        assert same_bits(run(session_of(graph, isa=isa, threads=threads), x), expected), isa


def test_the_bits_of_a_token_do_not_depend_on_the_others() -> None:
    rng = np.random.default_rng(0)
    own = heads_of(rng, 20, 192, 512)  # GLM-4.7-Flash's
    x, session = own.x(rng, 23), session_of(own.graph(), threads=2)
    whole = run(session, x)
    for size in (1, 2, 7):
        assert same_bits(np.concatenate([run(session, x[i : i + size]) for i in range(0, 23, size)]), whole)
    assert run(session, x[:0]).shape == (0, 20, 512)


@pytest.mark.parametrize(
    ("attributes", "message"),
    [
        ({"heads": 0}, "heads must be 1 to 65536"),
        ({"heads": 1 << 17}, "heads must be 1 to 65536"),
        ({"heads": 4}, "codes have"),
        ({"N": 21}, "codes have"),
        ({"K": 1 << 31, "N": 1 << 31, "heads": 1 << 16}, "too many matrices"),
        ({"bits": 2, "block_size": 4, "K": 64}, "codes have"),
    ],
)
def test_attributes_that_do_not_fit(attributes: dict[str, int], message: str) -> None:
    with pytest.raises(Exception, match=message):
        session_of(heads_of(np.random.default_rng(0), 3, 64, 20).graph(**attributes))


@pytest.mark.parametrize("shape", [(2, 4, 64), (2, 3, 63), (3, 64), (2, 1, 3, 64)])
def test_another_shape_is_refused(shape: tuple[int, ...]) -> None:
    own = heads_of(np.random.default_rng(0), 3, 64, 20)
    graph = graph_of(own.together(), operator="BlockMatMulPerHead", attributes={"heads": 3}, rank=len(shape))
    with pytest.raises(Exception, match="has not the shape"):
        run(session_of(graph), np.zeros(shape, np.float32))


def exported(own: Heads) -> bytes:
    """The nodes that an export writes, the weights in the graph."""
    g, whole, count = GraphBuilder("heads"), own.together(), len(own.matrices)
    stored = partial(Tensor, offset=0, length=0)
    matrices = BlockHeads(
        codes=stored("codes", "uint8", whole.codes.shape),
        scales=stored("scales", "bfloat16", (*whole.scales.shape, 1)),
        heads=count,
        rows=whole.rows,
        columns=whole.columns,
        block_size=whole.block,
    )
    x = g.input("x", "float32", ["tokens", count, whole.columns])
    g.output("y", of_each_head(g, matrices, x), "float32", ["tokens", count, whole.rows])
    model = g.model()
    scales = onnx.TensorProto(name="scales", data_type=onnx.TensorProto.BFLOAT16, raw_data=whole.scales.tobytes())
    scales.dims.extend((*whole.scales.shape, 1))
    model.graph.initializer.extend([numpy_helper.from_array(whole.codes, "codes"), scales])
    return model.SerializeToString()


@pytest.mark.parametrize(("count", "columns", "rows", "block"), [(3, 192, 70, 64), (1, 32, 5, 32), (16, 128, 512, 64)])
@pytest.mark.parametrize("tokens", [1, 9])
def test_what_an_export_writes_becomes_the_operator(
    count: int, columns: int, rows: int, block: int, tokens: int
) -> None:
    rng = np.random.default_rng(columns + rows)
    own = heads_of(rng, count, columns, rows, block)
    graph, x = exported(own), own.x(rng, tokens)
    ours = with_kernels(graph)
    assert [node.op_type for node in onnx.load_from_string(ours).graph.node] == ["BlockMatMulPerHead"]
    assert not inexact_operators(ours)
    assert same_bits(run(session_of(ours), x), own.expected(x))
    # Without the kernels x is not rounded.
    stock: Any = ort.InferenceSession(graph, providers=["CPUExecutionProvider"])
    weights = np.stack([m.numbers() * m.wide_scales().astype(np.float64)[..., None] for m in own.matrices])
    exact = np.einsum("thk,hnk->thn", x.astype(np.float64), weights.reshape(count, rows, columns))
    np.testing.assert_allclose(run(stock, x), exact, atol=1e-5 * np.abs(exact).max())
