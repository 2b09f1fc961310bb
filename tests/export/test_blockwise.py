"""Block-wise rounding: its arithmetic, and that ONNX Runtime's operators compute what it says."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from edgegen.ort_session import open_session
from edgegen_export.blocks import linear, rows
from edgegen_export.checkpoint import LazyTensor
from edgegen_export.graph import GraphBuilder
from edgegen_export.parameters import StoredParameters
from edgegen_export.quantize.blockwise import block_size_for, quantize_rows
from edgegen_export.quantize.recipe import Recipe
from edgegen_export.writer import WeightsFile

TINY = np.finfo(np.float32).tiny
LARGE = float(np.float32(3e38))
COLUMNS = [64, 128, 192, 48, 100, 17, 8, 1]

matrices = arrays.arrays(
    np.float32,
    st.tuples(st.integers(1, 4), st.integers(1, 100)),
    # Not to the last value of float32: rounded up, that one is infinite.
    elements=st.floats(-LARGE, LARGE, width=32)
    | st.sampled_from([0.0, float(TINY), float(TINY) / 8, -float(TINY) * 127, LARGE]),
)


def dequantize_rows(codes: NDArray[np.uint8], scales: NDArray[np.float32], columns: int) -> NDArray[np.float32]:
    """What codes [n, blocks, block_size] and scales [n, blocks] stand for, by the operator's specification."""
    values: NDArray[Any] = (codes.astype(np.float32) - np.float32(128)) * scales[:, :, None]
    return values.reshape(len(codes), -1)[:, :columns]


@settings(deadline=None, max_examples=60)
@given(matrices, st.sampled_from([16, 32, 64]))
def test_every_weight_is_off_by_half_a_scale_at_most(matrix: NDArray[np.float32], block: int) -> None:
    codes, scales = quantize_rows(matrix, block)
    columns = matrix.shape[1]
    assert codes.dtype == np.uint8
    assert codes.shape == (len(matrix), -(-columns // block), block)
    assert scales.dtype == np.float32
    assert (scales > 0).all()
    assert np.isfinite(scales).all()
    per_column = np.repeat(scales.astype(np.float64), block, axis=1)[:, :columns]
    error = np.abs(dequantize_rows(codes, scales, columns).astype(np.float64) - matrix)
    assert (error <= per_column * 0.50001).all()


@settings(deadline=None, max_examples=60)
@given(matrices, st.sampled_from([16, 32, 64]))
def test_columns_that_fill_the_last_block_are_zero(matrix: NDArray[np.float32], block: int) -> None:
    codes, _ = quantize_rows(matrix, block)
    assert (codes.reshape(len(matrix), -1)[:, matrix.shape[1] :] == 128).all()


@settings(deadline=None, max_examples=60)
@given(
    arrays.arrays(np.uint8, (3, 2, 16), elements=st.integers(1, 255)),
    arrays.arrays(np.int8, (3, 2), elements=st.integers(-100, 100)),
)
def test_values_on_the_grid_come_back_exactly(codes: NDArray[np.uint8], exponents: NDArray[np.int8]) -> None:
    codes[:, :, 0] = 255  # the largest value of a block is what its scale is taken from
    scales = np.exp2(exponents.astype(np.float32))
    values = dequantize_rows(codes, scales, 32)
    found_codes, found_scales = quantize_rows(values, 16)
    np.testing.assert_array_equal(found_codes, codes)
    np.testing.assert_array_equal(found_scales, scales)


@settings(deadline=None, max_examples=60)
@given(matrices)
def test_rounding_what_was_rounded_changes_nothing_more(matrix: NDArray[np.float32]) -> None:
    codes, scales = quantize_rows(matrix, 16)
    once = dequantize_rows(codes, scales, matrix.shape[1])
    again, _ = quantize_rows(once, 16)
    np.testing.assert_array_equal(again[scales != 1], codes[scales != 1])


def test_zeros_and_denormals_become_zero() -> None:
    matrix = np.zeros((2, 32), np.float32)
    matrix[1, :16] = TINY / 2
    codes, scales = quantize_rows(matrix, 16)
    assert (codes == 128).all()
    assert (dequantize_rows(codes, scales, 32) == 0).all()


def test_signs_are_symmetric() -> None:
    matrix = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
    codes, scales = quantize_rows(matrix, 32)
    mirrored, same = quantize_rows(-matrix, 32)
    np.testing.assert_array_equal(same, scales)
    np.testing.assert_array_equal(mirrored.astype(int) - 128, 128 - codes.astype(int))


def test_rows_are_rounded_each_by_itself() -> None:
    matrix = np.random.default_rng(1).standard_normal((5, 100)).astype(np.float32)
    codes, scales = quantize_rows(matrix, 16)
    for k in range(5):
        one_codes, one_scales = quantize_rows(matrix[k : k + 1], 16)
        np.testing.assert_array_equal(one_codes[0], codes[k])
        np.testing.assert_array_equal(one_scales[0], scales[k])


@pytest.mark.parametrize(
    ("columns", "block"), [(64, 64), (768, 64), (96, 32), (32, 32), (48, 16), (16, 16), (100, 16), (17, 16), (1, 16)]
)
def test_blocks_divide_the_columns_where_any_does(columns: int, block: int) -> None:
    assert block_size_for(columns, 64) == block
    assert block_size_for(columns, 16) == 16


# What ONNX Runtime makes of it.


class Quantized:
    """A random matrix in a weights file, and two graphs that use it: a linear layer and a table of rows."""

    def __init__(self, folder: Path, columns: int, accuracy_level: int, count: int = 24) -> None:
        rng = np.random.default_rng(columns)
        matrix = rng.standard_normal((count, columns)).astype(np.float32)
        self.bias = rng.standard_normal(count).astype(np.float32)
        tensors = {"m.weight": LazyTensor.from_array(matrix), "m.bias": LazyTensor.from_array(self.bias)}
        sink = WeightsFile(folder / "weights.data")
        params = StoredParameters(tensors, Recipe(accuracy_level=accuracy_level), sink, lambda _: None)
        stored, bias = params.matrix("m"), params.bias("m")
        sink.close()
        self.values = dequantize_rows(*quantize_rows(matrix, block_size_for(columns, 64)), columns)

        layer, table = GraphBuilder("linear"), GraphBuilder("rows")
        x = layer.input("input", "float32", ["batch", "tokens", columns])
        layer.output("output", linear(layer, stored, x, bias), "float32", ["batch", "tokens", count])
        ids = table.input("input", "int64", ["batch", "tokens"])
        table.output("output", rows(table, stored, ids), "float32", ["batch", "tokens", columns])
        self._sessions = {g.name: _opened(g, folder) for g in (layer, table)}

    def run(self, name: Literal["linear", "rows"], value: NDArray[Any]) -> NDArray[np.float32]:
        return self._sessions[name].run(None, {"input": value})[0]


def _opened(g: GraphBuilder, folder: Path) -> Any:
    path = folder / f"{g.name}.onnx"
    path.write_bytes(g.model("weights.data").SerializeToString())
    return open_session(path, 1)


@pytest.mark.parametrize("columns", COLUMNS)
def test_the_linear_operator_multiplies_by_the_dequantized_matrix(tmp_path: Path, columns: int) -> None:
    quantized = Quantized(tmp_path, columns, accuracy_level=0)
    x = np.random.default_rng(2).standard_normal((2, 3, columns)).astype(np.float32)
    expected = x.astype(np.float64) @ quantized.values.T.astype(np.float64) + quantized.bias
    np.testing.assert_allclose(quantized.run("linear", x), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("columns", COLUMNS)
def test_its_fast_path_rounds_activations_as_well_and_no_more(tmp_path: Path, columns: int) -> None:
    quantized = Quantized(tmp_path, columns, accuracy_level=4)
    x = np.random.default_rng(3).standard_normal((2, 3, columns)).astype(np.float32)
    expected = x.astype(np.float64) @ quantized.values.T.astype(np.float64) + quantized.bias
    error = np.linalg.norm(quantized.run("linear", x) - expected) / np.linalg.norm(expected)
    assert error <= 0.01


@pytest.mark.parametrize("columns", COLUMNS)
def test_the_gather_operator_gives_the_dequantized_rows_exactly(tmp_path: Path, columns: int) -> None:
    quantized = Quantized(tmp_path, columns, accuracy_level=4)
    ids = np.array([[0, 23, 5], [7, 7, 1]])
    np.testing.assert_array_equal(quantized.run("rows", ids), quantized.values[ids])
