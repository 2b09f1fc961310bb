"""Block-wise rounding: its arithmetic, and that ONNX Runtime's operators compute what it says."""

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from numpy.typing import NDArray

from edgegen.bundle.manifest import MatrixFormat, Quantization
from edgegen.errors import BundleError, DeviceError
from edgegen.model.device import CUDA, DeviceSession
from edgegen.model.ort_session import open_session
from edgegen_export.graph.builder import GraphBuilder
from edgegen_export.graph.matrices import linear, rows
from edgegen_export.graph.parameters import StoredParameters
from edgegen_export.output.bundle_writer import WeightsFile
from edgegen_export.quantize.blockwise import (
    Blocks,
    as_stored,
    block_size_for,
    packed,
    round_rows,
    stored_bits,
    widened,
)
from edgegen_export.quantize.recipe import EIGHT_BITS, FOUR_BITS, NARROW
from edgegen_export.tensors.lazy import LazyTensor
from tests.kernels.material import needs_library

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


def dequantized(codes: NDArray[np.uint8], scales: NDArray[np.float32], zeros: Any, columns: int) -> NDArray[np.float32]:
    """Return the values of codes [n, blocks, block_size] and scales [n, blocks], by the operator's specification."""
    values: NDArray[Any] = (codes.astype(np.float32) - np.float32(zeros)) * scales[:, :, None]
    return values.reshape(len(codes), -1)[:, :columns]


@settings(deadline=None, max_examples=60)
@given(matrices, st.sampled_from([4, 8]), st.sampled_from([16, 32, 64]))
def test_every_weight_is_off_by_half_a_scale_at_most(matrix: NDArray[np.float32], bits: int, block: int) -> None:
    blocks = round_rows(matrix, bits, block)
    columns, zero = matrix.shape[1], 2 ** (bits - 1)
    assert blocks.codes.dtype == np.uint8
    assert blocks.codes.max() < 2**bits
    assert blocks.codes.shape == (len(matrix), -(-columns // block), block)
    assert blocks.scales.dtype == np.float32
    assert (blocks.scales != 0).all()
    assert np.isfinite(blocks.scales).all()
    np.testing.assert_array_equal(as_stored(blocks.scales), blocks.scales)
    values = dequantized(blocks.codes, blocks.scales, zero, columns)
    np.testing.assert_array_equal(blocks.values(), values)
    steps = np.repeat(np.abs(blocks.scales.astype(np.float64)), block, axis=1)[:, :columns]
    off = np.abs(values.astype(np.float64) - matrix)
    # In 4 bits a weight opposite to the largest has one code less.
    clipped = np.minimum(off, np.abs(off - steps)) if bits == 4 else off
    assert (clipped <= steps * 0.52).all()
    assert (off <= steps * 1.02).all()


@settings(deadline=None, max_examples=60)
@given(matrices, st.sampled_from([4, 8]), st.sampled_from([16, 32, 64]))
def test_columns_that_fill_the_last_block_are_zero(matrix: NDArray[np.float32], bits: int, block: int) -> None:
    codes = round_rows(matrix, bits, block).codes
    assert (codes.reshape(len(matrix), -1)[:, matrix.shape[1] :] == 2 ** (bits - 1)).all()


@settings(deadline=None, max_examples=60)
@given(
    arrays.arrays(np.uint8, (3, 2, 16), elements=st.integers(1, 255)),
    arrays.arrays(np.int8, (3, 2), elements=st.integers(-100, 100)),
)
def test_values_on_the_grid_come_back_exactly(codes: NDArray[np.uint8], exponents: NDArray[np.int8]) -> None:
    codes[:, :, 0] = 255  # the largest value of a block is what its scale is taken from
    scales = np.exp2(exponents.astype(np.float32))
    found = round_rows(dequantized(codes, scales, 128, 32), 8, 16)
    np.testing.assert_array_equal(found.codes, codes)
    np.testing.assert_array_equal(found.scales, scales)


def test_the_largest_of_four_bits_is_eight_steps_away_on_either_side() -> None:
    matrix = np.linspace(-0.5, 1, 32, dtype=np.float32)[None] * np.array([[1], [-1]], np.float32)
    blocks = round_rows(matrix, 4, 32)
    np.testing.assert_array_equal(blocks.scales, [[-0.125], [0.125]])
    np.testing.assert_array_equal(blocks.codes[:, 0, -1], [0, 0])
    np.testing.assert_array_equal(blocks.values()[:, -1], [1, -1])


@pytest.mark.parametrize("bits", [4, 8])
def test_zeros_and_denormals_become_zero(bits: int) -> None:
    matrix = np.zeros((2, 32), np.float32)
    matrix[1, :16] = TINY / 2
    blocks = round_rows(matrix, bits, 16)
    assert (blocks.codes == 2 ** (bits - 1)).all()
    assert (blocks.values() == 0).all()


def test_signs_are_symmetric() -> None:
    matrix = np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)
    for bits in (4, 8):
        np.testing.assert_array_equal(round_rows(-matrix, bits, 32).values(), -round_rows(matrix, bits, 32).values())


@pytest.mark.parametrize("bits", [4, 8])
def test_rows_are_rounded_each_by_itself(bits: int) -> None:
    matrix = np.random.default_rng(1).standard_normal((5, 100)).astype(np.float32)
    blocks = round_rows(matrix, bits, 16)
    for k in range(5):
        one = round_rows(matrix[k : k + 1], bits, 16)
        np.testing.assert_array_equal(one.codes[0], blocks.codes[k])
        np.testing.assert_array_equal(one.scales[0], blocks.scales[k])


def test_the_first_code_of_a_byte_has_its_low_bits() -> None:
    np.testing.assert_array_equal(packed(np.array([[1, 2, 15]], np.uint8), 4), [[0x21, 0x8F]])
    np.testing.assert_array_equal(packed(np.array([[1, 255]], np.uint8), 8), [[1, 255]])


@pytest.mark.parametrize(
    ("columns", "block"), [(64, 64), (768, 64), (96, 32), (32, 32), (48, 16), (16, 16), (100, 16), (17, 16), (1, 16)]
)
def test_blocks_divide_the_columns_where_any_does(columns: int, block: int) -> None:
    assert block_size_for(columns, 64) == block
    assert block_size_for(columns, 16) == 16


# What ONNX Runtime makes of it.


FORMATS = {
    "8 bits": EIGHT_BITS,
    "4 bits": replace(FOUR_BITS, symmetric=True),
    "4 bits with zeros": FOUR_BITS,
    "8 bits with zeros": replace(EIGHT_BITS, symmetric=False),
}
NAMES_OF_NARROW = {f"{form.bits} bits{'' if form.symmetric else ' with zeros'}": form for form in NARROW}


class Quantized:
    """A random matrix in a weights file, and two graphs that use it: a linear layer and a table of rows."""

    def __init__(self, folder: Path, columns: int, form: MatrixFormat, count: int = 24) -> None:
        rng = np.random.default_rng(columns)
        matrix = rng.standard_normal((count, columns)).astype(np.float32)
        self.bias = rng.standard_normal(count).astype(np.float32)
        tensors = {"m.weight": LazyTensor.from_array(matrix), "m.bias": LazyTensor.from_array(self.bias)}
        blocks = round_rows(matrix, form.bits, block_size_for(columns, form.block_size))
        if not form.symmetric:
            zeros = rng.integers(1, 2**form.bits - 1, blocks.scales.shape).astype(np.uint8)
            blocks = Blocks(blocks.codes, blocks.scales, zeros, form.bits, columns)
        zeros = 2 ** (form.bits - 1) if blocks.zeros is None else blocks.zeros[:, :, None]
        self.values = dequantized(blocks.codes, blocks.scales, zeros, columns)
        sink = WeightsFile(folder / "weights.data")
        recipe = Quantization("int4", linear=form, embedding=form)
        params = StoredParameters(tensors, recipe, sink, lambda _: None, lambda _module, _form: blocks)
        stored, bias = params.matrix("m"), params.bias("m")
        sink.close()

        layer, table = GraphBuilder("linear"), GraphBuilder("rows")
        x = layer.input("input", "float32", ["batch", "tokens", columns])
        layer.output("output", linear(layer, stored, x, bias), "float32", ["batch", "tokens", count])
        ids = table.input("input", "int64", ["batch", "tokens"])
        table.output("output", rows(table, stored, ids), "float32", ["batch", "tokens", columns])
        self._sessions = {g.name: _opened(g, folder) for g in (layer, table)}

    def run(self, name: Literal["linear", "rows"], value: NDArray[Any]) -> NDArray[np.float32]:
        return self._sessions[name].run(None, {"input": value})[0]


def _opened(g: GraphBuilder, folder: Path, *, kernels: bool = True) -> Any:
    path = folder / f"{g.name}.onnx"
    path.write_bytes(g.model("weights.data").SerializeToString())
    return open_session(path, 1, kernels=kernels)


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("columns", COLUMNS)
def test_the_linear_operator_multiplies_by_the_dequantized_matrix(
    tmp_path: Path, columns: int, form: MatrixFormat
) -> None:
    quantized = Quantized(tmp_path, columns, replace(form, accuracy_level=0))
    x = np.random.default_rng(2).standard_normal((2, 3, columns)).astype(np.float32)
    expected = x.astype(np.float64) @ quantized.values.T.astype(np.float64) + quantized.bias
    np.testing.assert_allclose(quantized.run("linear", x), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("columns", COLUMNS)
def test_its_fast_path_rounds_activations_as_well_and_no_more(tmp_path: Path, columns: int, form: MatrixFormat) -> None:
    quantized = Quantized(tmp_path, columns, form)
    x = np.random.default_rng(3).standard_normal((2, 3, columns)).astype(np.float32)
    expected = x.astype(np.float64) @ quantized.values.T.astype(np.float64) + quantized.bias
    error = np.linalg.norm(quantized.run("linear", x) - expected) / np.linalg.norm(expected)
    assert error <= 0.012


@pytest.mark.parametrize("form", FORMATS.values(), ids=FORMATS)
@pytest.mark.parametrize("columns", COLUMNS)
def test_the_gather_operator_gives_the_dequantized_rows_exactly(
    tmp_path: Path, columns: int, form: MatrixFormat
) -> None:
    quantized = Quantized(tmp_path, columns, form)
    ids = np.array([[0, 23, 5], [7, 7, 1]])
    np.testing.assert_array_equal(quantized.run("rows", ids), quantized.values[ids])


@pytest.mark.parametrize("form", NAMES_OF_NARROW.values(), ids=NAMES_OF_NARROW)
@pytest.mark.parametrize("columns", [32, 64, 96, 128, 160, 416])
def test_kernels_compute_what_codes_of_3_and_2_bits_stand_for(tmp_path: Path, columns: int, form: MatrixFormat) -> None:
    needs_library()
    quantized = Quantized(tmp_path, columns, form)
    x = np.random.default_rng(3).standard_normal((2, 3, columns)).astype(np.float32)
    expected = x.astype(np.float64) @ quantized.values.T.astype(np.float64) + quantized.bias
    error = np.linalg.norm(quantized.run("linear", x) - expected) / np.linalg.norm(expected)
    assert error <= 0.012  # the rounding of x
    ids = np.array([[0, 23, 5], [7, 7, 1]])
    np.testing.assert_array_equal(quantized.run("rows", ids), quantized.values[ids])


@pytest.mark.parametrize("form", NARROW, ids=NAMES_OF_NARROW)
def test_stock_operators_are_refused_for_3_and_2_bits(tmp_path: Path, form: MatrixFormat) -> None:
    needs_library()
    Quantized(tmp_path, 64, form)
    for name in ("linear", "rows"):
        with pytest.raises(BundleError, match=rf"{name}.onnx has matrices of 3 or 2 bits, .* here is stock: take"):
            open_session(tmp_path / f"{name}.onnx", 1, kernels=False)
        with pytest.raises(DeviceError, match="run it on the CPU"):
            DeviceSession(tmp_path / f"{name}.onnx", CUDA)


@pytest.mark.parametrize("form", NARROW, ids=NAMES_OF_NARROW)
def test_codes_of_3_and_2_bits_have_the_same_values_in_4(form: MatrixFormat) -> None:
    blocks = round_rows(np.random.default_rng(0).standard_normal((5, 96)).astype(np.float32), form.bits, 32)
    if not form.symmetric:
        blocks = replace(blocks, zeros=np.random.default_rng(1).integers(0, 2**form.bits, (5, 3)).astype(np.uint8))
    assert widened(blocks).bits == 4
    np.testing.assert_array_equal(widened(blocks).values(), blocks.values())


@pytest.mark.parametrize("form", [*FORMATS.values(), *NARROW], ids=[*FORMATS, *NAMES_OF_NARROW])
@pytest.mark.parametrize("columns", COLUMNS)
def test_stored_bits_are_those_of_the_file(columns: int, form: MatrixFormat) -> None:
    class Sink:
        size = 0

        def begin(self, nbytes: int) -> int:
            return self.size

        def append(self, array: NDArray[np.generic]) -> None:
            self.size += array.nbytes

    if form in NARROW and columns % form.block_size:
        return  # which no ladder has
    sink, matrix = Sink(), np.ones((24, columns), np.float32)
    blocks = round_rows(matrix, form.bits, block_size_for(columns, form.block_size))
    if not form.symmetric:
        blocks = replace(blocks, zeros=np.ones(blocks.scales.shape, np.uint8))
    recipe = Quantization("int4", linear=form, embedding=form)
    params = StoredParameters(
        {"m.weight": LazyTensor.from_array(matrix)}, recipe, sink, lambda _: None, lambda _module, _form: blocks
    )
    params.matrix("m")
    assert stored_bits(matrix.shape, form) == 8 * sink.size
    assert params.bits_per_weight == 8 * sink.size / matrix.size
