"""GPTQ's inner loops in C: the bits of the NumPy code, on every instruction set, for any block."""

import ctypes
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgegen_export.quantize.blockwise import nearest_with_numpy
from edgegen_export.quantize.gptq import gptq, round_with_numpy
from edgegen_export.quantize.hessian import Hessian, factors_of
from edgegen_export.quantize.native import native_block, native_nearest, native_search
from edgegen_export.quantize.scale_search import search_with_numpy
from edgegen_export.tensors.lazy import LazyTensor
from tests.kernels.material import instruction_set, instruction_sets, needs_library
from tests.kernels.stock import needs_kernels

pytestmark = needs_kernels

Floats = NDArray[np.float32]
KINDS = ("normal", "coarse", "offset", "tiny", "huge", "zeros")


def block(columns: int, rows: int, kind: str, seed: int) -> Floats:
    """Weights [columns, rows]; some rows of ``coarse`` ones lie between two codes, some blocks are all zeros."""
    rng = np.random.default_rng(seed)
    x: Floats = rng.standard_normal((columns, rows)).astype(np.float32)
    match kind:
        case "coarse":
            np.rint(2 * x, out=x)
            x /= 2
        case "offset":
            x += np.float32(3)
        case "tiny" | "huge":
            x *= np.float32(1e-37 if kind == "tiny" else 1e15)
        case "zeros":
            x[:, ::2] = 0
        case _:
            pass
    return x


def factor(columns: int, seed: int) -> Floats:
    """An upper triangular factor, within a larger one."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((2 * columns + 3, columns + 5)).astype(np.float32)
    (whole,) = factors_of(Hessian([x.T @ x]), 1)
    return whole.corners[0][:columns, :columns]


blocks = {
    "columns": st.integers(1, 80),
    "rows": st.integers(1, 70),
    "kind": st.sampled_from(KINDS),
    "bits": st.sampled_from([4, 8]),
    "symmetric": st.booleans(),
    "seed": st.integers(0, 2**16),
}


@settings(deadline=None, max_examples=60)
@given(**blocks)
def test_a_block_has_the_bits_of_numpy(
    columns: int, rows: int, kind: str, bits: int, symmetric: bool, seed: int
) -> None:
    x, upper = block(columns, rows, kind, seed), factor(columns, seed)

    def outputs() -> tuple[Floats, NDArray[np.uint8], Floats]:
        return x.copy(), np.zeros(x.shape, np.uint8), np.zeros_like(x)

    with np.errstate(all="ignore"):
        part, codes, errors = outputs()
        expected = round_with_numpy(part, upper, bits, codes, errors, symmetric=symmetric)
    for isa in instruction_sets():
        found_part, found_codes, found_errors = outputs()
        with instruction_set(isa):
            found = native_block(found_part, upper, bits, found_codes, found_errors, symmetric=symmetric)
        assert found is not None
        for ours, theirs in zip((*found, found_codes, found_errors), (*expected, codes, errors), strict=True):
            np.testing.assert_array_equal(ours, theirs, err_msg=isa)


@settings(deadline=None, max_examples=60)
@given(**blocks)
def test_a_search_has_the_bits_of_numpy(
    columns: int, rows: int, kind: str, bits: int, symmetric: bool, seed: int
) -> None:
    x = block(columns, rows, kind, seed)
    importance = np.random.default_rng(seed).uniform(0.1, 10, columns).astype(np.float32)
    with np.errstate(all="ignore"):
        expected = search_with_numpy(x, importance, bits, symmetric=symmetric)
    for isa in instruction_sets():
        with instruction_set(isa):
            found = native_search(x, importance, bits, symmetric=symmetric)
        assert found is not None
        np.testing.assert_array_equal(found, expected, err_msg=isa)


@settings(deadline=None, max_examples=60)
@given(
    st.integers(1, 5), st.sampled_from([16, 32, 64, 128, 256]), st.sampled_from(KINDS), st.integers(2, 8), st.integers()
)
def test_nearest_codes_have_the_bits_of_numpy(blocks: int, size: int, kind: str, bits: int, seed: int) -> None:
    grouped = block(size, 3 * blocks, kind, seed % 2**16).T.reshape(3, blocks, size)
    with np.errstate(all="ignore"):
        expected = nearest_with_numpy(grouped, bits)
    for isa in instruction_sets():
        with instruction_set(isa):
            found = native_nearest(grouped, bits)
        assert found is not None
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_array_equal(ours, theirs, err_msg=isa)


@pytest.mark.parametrize("wrong", [np.nan, np.inf, -np.inf])
def test_scales_tell_of_values_that_are_not_finite(wrong: float) -> None:
    for at in range(32):
        grouped = np.ones((1, 1, 32), np.float32)
        grouped[0, 0, at] = wrong
        for isa in instruction_sets():
            with instruction_set(isa):
                found = native_nearest(grouped, 8)
            assert found is not None
            assert not np.isfinite(found[1]).any(), isa


def test_large_blocks_are_left_to_numpy() -> None:
    assert native_nearest(np.ones((1, 1, 512), np.float32), 8) is None
    assert native_nearest(np.ones((1, 1, 20), np.float32), 8) is None
    assert native_search(np.ones((257, 2), np.float32), np.ones(257, np.float32), 4, symmetric=True) is None


@pytest.mark.parametrize(
    "sizes", [(0, 1, 4), (257, 1, 4), (4, 1, 1), (4, 1, 9)], ids=["no columns", "many columns", "one bit", "nine bits"]
)
def test_sizes_that_are_none_are_refused(sizes: tuple[int, int, int]) -> None:
    library: Any = ctypes.CDLL(str(needs_library()))
    columns, rows, bits = sizes
    room = np.zeros((300, 300), np.float32).ctypes.data
    counts = (ctypes.c_size_t(columns), ctypes.c_size_t(rows), bits, 1)
    memory = [ctypes.c_void_p(room)] * 4
    assert library.edgegen_search_scales(*counts, *memory) == 1
    matrix = (memory[0], memory[0], ctypes.c_size_t(300))
    assert library.edgegen_gptq_block(*counts, *matrix, *memory) == 1
    assert library.edgegen_round_nearest(ctypes.c_size_t(1), ctypes.c_size_t(columns), bits, *memory[:3]) == 1


def test_a_factor_whose_rows_overlap_is_refused() -> None:
    library: Any = ctypes.CDLL(str(needs_library()))
    memory = [ctypes.c_void_p(np.zeros(300, np.float32).ctypes.data)] * 4
    counts = (ctypes.c_size_t(8), ctypes.c_size_t(1), 4, 1)
    assert library.edgegen_gptq_block(*counts, memory[0], memory[0], ctypes.c_size_t(7), *memory) == 1


def no_library(*_: object, symmetric: bool) -> None:
    """Answer as ``native_block`` does without a library."""


def test_a_matrix_has_the_same_bits_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(1)
    x, weight = (rng.standard_normal(shape).astype(np.float32) for shape in ((300, 200), (90, 200)))
    factors = factors_of(Hessian([x.T @ x]), 32)

    def rounded() -> list[NDArray[Any]]:
        ways = (True, False)
        found = [gptq(LazyTensor.from_array(weight), factors, 4, 32, symmetric=symmetric) for symmetric in ways]
        return [array for blocks in found for array in (blocks.codes, blocks.scales, blocks.zeros) if array is not None]

    here = rounded()
    monkeypatch.setattr("edgegen_export.quantize.gptq.native_block", no_library)
    for ours, theirs in zip(here, rounded(), strict=True):
        np.testing.assert_array_equal(ours, theirs)
