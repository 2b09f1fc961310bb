"""The matrix operator: its definition is met to the last bit, by every instruction set, thread count and batch."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kernels.material import (
    SCALE_TYPES,
    Weights,
    fma,
    graph_of,
    instruction_sets,
    random_weights,
    reference,
    run,
    same_bits,
    session_of,
)

SEEDS = st.integers(0, 2**32 - 1)
SPECIAL = np.array([np.nan, np.inf, -np.inf, 1e-45, 9.9e-31, 1.1e-30, -1e-38, 3e38, -3.4e38, 0.0, -0.0], np.float32)


@st.composite
def matrices(draw: st.DrawFn) -> Weights:
    bits = draw(st.sampled_from([2, 3, 4, 8]))
    return random_weights(
        np.random.default_rng(draw(SEEDS)),
        draw(st.one_of(st.integers(1, 330), st.sampled_from([384, 512, 1000]))),
        draw(st.one_of(st.integers(1, 100), st.sampled_from([160, 257, 1030]))),
        block=draw(st.sampled_from([32, 64])) if bits >= 4 else 32,
        bits=bits,
        scale_type=draw(st.sampled_from(SCALE_TYPES)),
        zeros=draw(st.booleans()),
        bias=draw(st.booleans()),
    )


def everywhere(weights: Weights, x: np.ndarray, *threads: int) -> None:
    """Every instruction set computes what the definition says."""
    expected, graph = reference(weights, x), graph_of(weights)
    for isa in instruction_sets():
        for count in threads or (1,):
            y = run(session_of(graph, isa=isa, threads=count), x)
            assert same_bits(y, expected), (isa, count, np.argwhere(y.view(np.uint32) != expected.view(np.uint32))[:3])


@settings(max_examples=100, deadline=None)
@given(weights=matrices(), rows=st.one_of(st.integers(1, 14), st.integers(1, 200)), seed=SEEDS)
def test_every_instruction_set_computes_what_the_definition_says(weights: Weights, rows: int, seed: int) -> None:
    everywhere(weights, np.random.default_rng(seed).normal(size=(rows, weights.columns)).astype(np.float32))


@settings(max_examples=40, deadline=None)
@given(weights=matrices(), rows=st.integers(1, 20), seed=SEEDS, share=st.sampled_from([0.005, 0.1, 0.7]))
def test_special_values_stay_in_their_blocks(weights: Weights, rows: int, seed: int, share: float) -> None:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(rows, weights.columns)).astype(np.float32)
    there = rng.random(x.shape) < share
    x[there] = rng.choice(SPECIAL, there.sum())
    everywhere(weights, x)


@settings(max_examples=30, deadline=None)
@given(weights=matrices(), rows=st.integers(1, 9), seed=SEEDS)
def test_extreme_codes_and_scales(weights: Weights, rows: int, seed: int) -> None:
    """Sums are exact where every product is the largest, and scales may be what a file says."""
    rng = np.random.default_rng(seed)
    codes = rng.choice(np.array([0, 255], np.uint8), weights.codes.shape)
    scales = rng.choice(np.array([0, 1e-40, -1e-38, 1e-20, 1, -3e38], np.float32), weights.wide_scales().shape)
    x = rng.choice(np.array([-1, 1, 127], np.float32), (rows, weights.columns))
    everywhere(replace(weights, codes=codes, scales=scales), x)


@pytest.mark.parametrize("bits", [2, 3, 4, 8])
@pytest.mark.parametrize("rows", [1, 5, 40])
def test_threads_chunks_and_batches_change_no_bit(bits: int, rows: int) -> None:
    rng = np.random.default_rng(rows)
    weights = random_weights(rng, 200, 1100, bits=bits, zeros=True, bias=True)
    x = rng.normal(size=(rows, 200)).astype(np.float32)
    everywhere(weights, x, 1, 2, 4)
    session = session_of(graph_of(weights), threads=2)
    whole = run(session, x)
    for size in (1, 3, 7, 8, 13):
        assert same_bits(np.concatenate([run(session, x[i : i + size]) for i in range(0, rows, size)]), whole)


@pytest.mark.parametrize("shape", [(70,), (1, 70), (2, 3, 70), (1, 2, 1, 2, 1, 2, 1, 70)])
def test_x_may_have_one_to_eight_dimensions(shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    weights = random_weights(rng, 70, 9)
    x = rng.normal(size=shape).astype(np.float32)
    y = run(session_of(graph_of(weights, rank=len(shape))), x)
    assert same_bits(y, reference(weights, x.reshape(-1, 70)).reshape(*shape[:-1], 9))


@pytest.mark.parametrize("shape", [(0, 70), (3, 0, 70)])
def test_a_product_of_no_rows_is_empty(shape: tuple[int, ...]) -> None:
    weights = random_weights(np.random.default_rng(0), 70, 9)
    y = run(session_of(graph_of(weights, rank=len(shape))), np.zeros(shape, np.float32))
    assert y.shape == (*shape[:-1], 9)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("block", [32, 64])
@pytest.mark.parametrize("zeros", [False, True])
@pytest.mark.parametrize("rows", [1, 33])
def test_the_stock_operator_agrees(bits: int, block: int, zeros: bool, rows: int) -> None:
    """Within roundings: relative to the sizes that are summed."""
    rng = np.random.default_rng(bits + block + rows)
    weights = random_weights(rng, 512, 200, block=block, bits=bits, zeros=zeros, bias=True)
    x = rng.normal(size=(rows, 512)).astype(np.float32)
    ours = run(session_of(graph_of(weights)), x)
    stock = run(session_of(graph_of(weights, operator="MatMulNBits")), x)
    sizes = np.abs(x) @ np.abs(weights.numbers() * weights.wide_scales()[..., None]).reshape(200, -1).T
    assert np.max(np.abs(ours - stock) / sizes) < 1e-5


@settings(max_examples=300, deadline=None)
@given(*[st.floats(width=32, allow_nan=False, allow_infinity=False)] * 3)
def test_the_reference_rounds_products_and_sums_once(a: float, b: float, c: float) -> None:
    """Against rational numbers: nothing that float32 has lies nearer."""
    exact = Fraction(a) * Fraction(b) + Fraction(c)
    with np.errstate(over="ignore"):
        found = fma(*(np.array([value], np.float32) for value in (a, b, c)))[0]
    if not np.isfinite(found):
        assert abs(exact) >= Fraction(float(np.finfo(np.float32).max))
        return
    distance = abs(Fraction(float(found)) - exact)
    with np.errstate(over="ignore"):
        others = [np.nextafter(found, np.float32(way)) for way in (np.inf, -np.inf)]
    for other in others:
        if np.isfinite(other):
            assert distance <= abs(Fraction(float(other)) - exact)
