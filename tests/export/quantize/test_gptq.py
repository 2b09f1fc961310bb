"""GPTQ and its scale search against slow, literal versions, and against plain rounding."""

from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from edgegen_export.files.scratch import Scratch
from edgegen_export.quantize.blockwise import Blocks, as_stored, round_rows
from edgegen_export.quantize.gptq import gptq
from edgegen_export.quantize.hessian import DAMPING, MOST_IN_GROUP, Hessian, column_groups, factors_of
from edgegen_export.quantize.scale_search import search_scales
from edgegen_export.tensors.lazy import LazyTensor

Array = NDArray[np.float32]


def inputs(columns: int, count: int = 600, seed: int = 0) -> Array:
    """Correlated inputs [count, columns], some channels larger."""
    rng = np.random.default_rng(seed)
    mixed = rng.standard_normal((count, columns)) @ (np.eye(columns) + rng.standard_normal((columns, columns)) / 8)
    return (mixed * rng.uniform(0.2, 3, columns)).astype(np.float32)


def matrix(rows: int, columns: int, seed: int = 1) -> Array:
    return np.random.default_rng(seed).standard_normal((rows, columns)).astype(np.float32)


def quantized(weight: Array, hessian: Array, block_size: int = 32, *, symmetric: bool) -> Blocks:
    factors = factors_of(Hessian([hessian]), block_size)
    return gptq(LazyTensor.from_array(weight), factors, 4, block_size, symmetric=symmetric)


def loss(weight: Array, values: Array, x: Array) -> float:
    """‖x (weight − values)ᵀ‖²."""
    return float((np.square(x.astype(np.float64) @ (weight - values).T.astype(np.float64))).sum())


def obs(weight: Array, hessian: Array, scales: Array, zeros: Array, block: int) -> NDArray[np.float64]:
    """The codes by the paper's formulas (2) and (3), before any of its speed-ups: round a column, spread its error over
    the columns left by their own inverse Hessian, take the column out. ``scales``, ``zeros`` [n, blocks] are given."""
    left, w = list(range(weight.shape[1])), weight.astype(np.float64)
    damped = hessian.astype(np.float64) + DAMPING * np.diagonal(hessian).mean() * np.eye(len(hessian))
    codes = np.zeros(weight.shape)
    while len(left):
        q = left[0]
        scale, zero = scales[:, q // block], zeros[:, q // block]
        codes[:, q] = np.clip(np.rint(w[:, q] / scale) + zero, 0, 15)
        # The inverse's first row is what solves H x = e₁.
        row = np.asarray(np.linalg.solve(damped[left][:, left], np.eye(len(left))[0]), np.float64)
        w[:, left] -= np.outer(w[:, q] - (codes[:, q] - zero) * scale, row / float(row[0]))
        left = left[1:]
    return codes


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("columns", [32, 64, 96])
def test_codes_are_those_of_the_literal_algorithm(columns: int, symmetric: bool) -> None:
    x, weight = inputs(columns), matrix(12, columns)
    found = quantized(weight, x.T @ x, symmetric=symmetric)
    zeros = np.full(found.scales.shape, 8) if found.zeros is None else found.zeros
    expected = obs(weight, x.T @ x, found.scales, zeros.astype(np.float32), 32)
    same = found.codes.reshape(12, columns) == expected
    assert same.mean() > 0.995  # float32 against float64: a tie falls to the other side now and then


@pytest.mark.parametrize("symmetric", [True, False])
def test_gptq_beats_rounding_on_seen_and_unseen_inputs(symmetric: bool) -> None:
    weight = matrix(40, 128)
    seen, others = inputs(128), inputs(128, seed=0)[::-1][:300]
    found = quantized(weight, seen.T @ seen, symmetric=symmetric).values()
    plain = round_rows(weight, 4, 32).values()
    for x in (seen, others):
        assert loss(weight, found, x) < 0.75 * loss(weight, plain, x)


def test_columns_of_wide_matrices_are_parted_into_equal_groups() -> None:
    for columns in (20, MOST_IN_GROUP, MOST_IN_GROUP + 1, 4864, 8960, 11008, 18944, 50_001):
        groups = column_groups(columns)
        assert [group.start for group in groups] == [0, *(group.stop for group in groups[:-1])]
        assert groups[-1].stop == columns
        assert all(group.stop - group.start <= MOST_IN_GROUP for group in groups)
        assert all(group.stop % 64 == 0 for group in groups[:-1])
    assert [group.stop for group in column_groups(8960)] == [2240, 4480, 6720, 8960]


def test_groups_of_columns_are_rounded_as_matrices_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("edgegen_export.quantize.hessian.MOST_IN_GROUP", 128)
    x, weight = inputs(320), matrix(9, 320)
    hessian = Hessian.zeros(320, Scratch())
    hessian.add(x[:200])
    hessian.add(x[200:])
    assert [len(square) for square in hessian.squares] == [128, 128, 64]
    found = gptq(LazyTensor.from_array(weight), factors_of(hessian, 32), 4, 32, symmetric=False)
    for first, last in ((0, 128), (128, 256), (256, 320)):
        part = Hessian.zeros(last - first, Scratch())
        part.add(x[:200, first:last])
        part.add(x[200:, first:last])
        alone = gptq(LazyTensor.from_array(weight[:, first:last].copy()), factors_of(part, 32), 4, 32, symmetric=False)
        np.testing.assert_allclose(found.values()[:, first:last], alone.values(), atol=1e-5)


def test_factors_are_those_of_the_damped_hessian() -> None:
    x = inputs(600, count=5000)
    (factor,) = factors_of(Hessian([np.triu(x.T @ x)]), 32)
    upper = factor.upper.astype(np.float64)
    whole = x.astype(np.float64).T @ x
    whole += DAMPING * np.diagonal(whole).mean() * np.eye(600)
    assert (np.tril(upper, -1) == 0).all()
    np.testing.assert_allclose((upper @ upper.T)[:600, :600], whole, atol=1e-5 * np.abs(whole).max())
    for corner, first in zip(factor.corners, range(0, len(upper), 128), strict=True):
        own = upper[first : first + 128, first : first + 128]
        np.testing.assert_allclose(corner @ own, np.eye(len(own)), atol=1e-4)


def test_few_inputs_tell_less_of_how_columns_depend_on_each_other() -> None:
    """On inputs that were not seen, what is kept of the products costs less than to believe all of them."""
    seen, others, weight = inputs(128, count=160), inputs(128, count=900)[160:], matrix(40, 128)
    few = Hessian.zeros(128, Scratch())
    few.add(seen)
    assert few.kept(128) == pytest.approx(640 / 768)
    lost = [
        loss(weight, gptq(LazyTensor.from_array(weight), factors_of(one, 32), 4, 32, symmetric=False).values(), others)
        for one in (few, Hessian(few.squares))
    ]
    assert lost[0] < lost[1]
    few.add(inputs(128, count=1000))
    assert few.kept(128) == 1.0


def test_zeros_of_their_own_help_blocks_that_are_not_centred() -> None:
    x, weight = inputs(64), matrix(20, 64) + np.float32(1.5)
    by_zeros = {s: loss(weight, quantized(weight, x.T @ x, symmetric=s).values(), x) for s in (True, False)}
    assert by_zeros[False] < 0.6 * by_zeros[True]


def test_rows_do_not_depend_on_each_other() -> None:
    x, weight = inputs(64), matrix(7, 64)
    whole = quantized(weight, x.T @ x, symmetric=False)
    for row in range(7):
        one = quantized(weight[row : row + 1], x.T @ x, symmetric=False)
        np.testing.assert_allclose(one.values()[0], whole.values()[row], atol=1e-6)


def test_what_is_lost_is_what_the_inputs_miss() -> None:
    x, weight = inputs(40), matrix(9, 40)
    found = quantized(weight, x.T @ x, 16, symmetric=False)
    damping = (DAMPING * np.square(x).sum(axis=0).mean()) ** 0.5 * np.eye(40, dtype=np.float32)
    assert found.lost == pytest.approx(loss(weight, found.values(), np.concatenate([x, damping])), rel=1e-3)


@pytest.mark.parametrize("columns", [20, 40, 1])
def test_columns_that_no_block_divides_are_padded_with_zeros_of_the_code(columns: int) -> None:
    x, weight = inputs(columns), matrix(5, columns)
    for symmetric in (True, False):
        found = quantized(weight, x.T @ x, 16, symmetric=symmetric)
        assert found.values().shape == weight.shape
        zeros = np.full(found.scales.shape, 8) if found.zeros is None else found.zeros
        padding = found.codes.reshape(5, -1)[:, columns:]
        assert (padding == np.repeat(zeros, 16, axis=1)[:, columns:]).all()


def test_channels_that_were_never_used_and_matrices_of_zeros_do_no_harm() -> None:
    x, weight = inputs(64), matrix(6, 64)
    x[:, 5] = 0
    found = quantized(weight, x.T @ x, symmetric=False)
    assert np.isfinite(found.values()).all()
    assert np.abs(found.values() - weight)[:, 5].max() < 0.5
    nothing = quantized(np.zeros((3, 64), np.float32), np.zeros((64, 64), np.float32), symmetric=True)
    assert (nothing.values() == 0).all()


@pytest.mark.parametrize("symmetric", [True, False])
def test_the_search_comes_near_the_best_of_all_scales_and_zeros(symmetric: bool) -> None:
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((24, 32)).astype(np.float32)
    weights += np.float32(0) if symmetric else rng.uniform(-3, 3, (24, 1)).astype(np.float32)
    importance = np.linspace(0.2, 2, 32, dtype=np.float32)
    scales, zeros = search_scales(weights.T.copy(), importance, 4, symmetric=symmetric)
    np.testing.assert_array_equal(as_stored(scales), scales)
    found, best, plain = np.zeros(24), np.zeros(24), np.zeros(24)
    for i, row in enumerate(weights):
        largest = float(np.abs(row).max())
        sizes = np.geomspace(largest / 30, largest / 3, 150)
        tried = product((8.0,) if symmetric else range(16), (*sizes, *-sizes) if symmetric else sizes)
        best[i] = min(cost(row, importance, scale, zero) for zero, scale in tried)
        found[i] = cost(row, importance, float(scales[i]), float(zeros[i]))
        plain[i] = cost(row, importance, float(round_rows(row[None], 4, 32).scales[0, 0]), 8.0)
    assert found.sum() <= 1.15 * best.sum()
    assert (found <= 1.7 * best).all()
    assert (found <= 1.01 * plain).all() or not symmetric


def cost(row: Array, importance: Array, scale: float, zero: float) -> float:
    steps = np.clip(np.rint(row / scale) + zero, 0, 15) - zero
    return float((importance * (row - steps * scale) ** 2).sum())
