"""Quantized tensors against the gguf library's own dequantization of the whole, and what is read for a part."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from gguf.quants import dequantize, quantize
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgegen.errors import CheckpointError
from edgegen_export.checkpoint.gguf.file import open_gguf
from edgegen_export.checkpoint.gguf.formats import FORMATS
from edgegen_export.checkpoint.gguf.quantized_tensor import QuantizedTensor
from edgegen_export.tensors import unpacked_matrix
from edgegen_export.tensors.lazy import LazyTensor
from edgegen_export.tensors.mapped_file import MappedFile
from tests.export.checkpoint.gguf_bytes import Raw, gguf_bytes
from tests.export.tensors.test_lazy import check, derive

QUANTIZED = {number: known for number, known in FORMATS.items() if known.dtype is None}
READABLE = [number for number, known in QUANTIZED.items() if known.readable]
# Largest error of a value, relative to the largest of its block, that the format's number of bits allows.
ERROR_BOUNDS = {"Q8_0": 0.5 / 127, "Q5_0": 1 / 16, "Q5_1": 0.5 / 15.5, "Q4_0": 1 / 8, "Q4_1": 0.5 / 7.5}


class Watched(MappedFile):
    """Keeps which bytes were given back, after they had been read."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.released: list[tuple[int, int]] = []

    def release(self, view: NDArray[Any]) -> None:
        start = view.ctypes.data - self.view(0, self.size, np.dtype(np.uint8), (-1,)).ctypes.data
        self.released.append((start, start + view.strides[0] * (len(view) - 1) + view.shape[1]))
        super().release(view)


def tensor_in(path: Path, number: int, stored: NDArray[np.uint8]) -> LazyTensor:
    known = FORMATS[number]
    columns = stored.shape[1] // known.nbytes * known.block
    content = gguf_bytes({"general.architecture": "x"}, [Raw("a", (columns, len(stored)), number)], stored.tobytes())
    path.write_bytes(content)
    return open_gguf(path).tensors["a"]


@pytest.mark.parametrize("number", READABLE, ids=lambda number: FORMATS[number].name)
def test_every_format_is_what_the_library_makes_of_it(tmp_path: Path, number: int) -> None:
    known = FORMATS[number]
    stored = np.random.default_rng(number).integers(0, 256, (37, 3 * known.nbytes), np.uint8)  # any bytes are blocks
    with np.errstate(all="ignore"):
        wanted = dequantize(stored, GGMLQuantizationType(number))
    tensor = tensor_in(tmp_path / "x.gguf", number, stored)
    assert (tensor.dtype, tensor.shape, tensor.names) == (known.name, (37, 3 * known.block), ("a",))
    np.testing.assert_array_equal(tensor.read(), wanted)
    np.testing.assert_array_equal(tensor.rows(5, 7), wanted[5:7])
    np.testing.assert_array_equal(
        tensor.take(known.block - 1, 2 * known.block + 1, axis=1).read(),
        wanted[:, known.block - 1 : 2 * known.block + 1],
    )


@pytest.mark.parametrize("name", list(ERROR_BOUNDS))
def test_quantizing_and_back_stays_within_the_formats_bounds(tmp_path: Path, name: str) -> None:
    kind = GGMLQuantizationType[name]
    array = np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32)
    tensor = tensor_in(tmp_path / "x.gguf", int(kind), quantize(array, kind))
    largest = np.abs(array).reshape(64, -1, 32).max(axis=-1, keepdims=True)
    error = np.abs(tensor.read() - array).reshape(64, -1, 32) / largest
    assert 0 < error.max() <= ERROR_BOUNDS[name] + 2**-10  # the scale is a float16


@given(data=st.data(), rows=st.integers(1, 7), blocks=st.integers(1, 3), max_bytes=st.integers(1, 2000))
@settings(deadline=None, max_examples=60)
def test_transforms_agree_with_numpy(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, rows: int, blocks: int, max_bytes: int
) -> None:
    kind = GGMLQuantizationType.Q8_0
    array = np.random.default_rng(rows).integers(-100, 100, (rows, 32 * blocks)).astype(np.float32)
    stored = quantize(array, kind)
    tensor = tensor_in(tmp_path_factory.mktemp("file") / "x.gguf", int(kind), stored)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unpacked_matrix, "_STEP", data.draw(st.integers(1, 200)))
        check(*derive(data.draw, tensor, dequantize(stored, kind)), max_bytes)


def test_only_the_blocks_that_are_asked_for_are_read(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(quantize(np.ones((1000, 96), np.float32), GGMLQuantizationType.Q8_0).tobytes())
    file, row = Watched(path), 3 * 34
    blocks = file.view(0, file.size, np.dtype(np.uint8), (1000, row))
    tensor = QuantizedTensor(blocks, name="a", format=FORMATS[8], file=file)
    described = [tensor.take(3, 9), tensor.transposed(), tensor.reordered(np.arange(1000)[::-1]), tensor.affine(2, 1)]
    assert not file.released  # describing reads nothing
    tensor.rows(10, 12)
    assert file.released == [(10 * row, 12 * row)]
    file.released.clear()
    tensor.take(40, 64, axis=1).rows(0, 2)
    assert file.released == [(34, 34 + row + 34)]  # the middle block of two rows
    file.released.clear()
    described[2].rows(0, 3)
    assert file.released == [(997 * row, 1000 * row)]


@pytest.mark.parametrize("number", [n for n in QUANTIZED if n not in READABLE], ids=lambda n: FORMATS[n].name)
def test_formats_that_are_not_read_say_so(tmp_path: Path, number: int) -> None:
    tensor = tensor_in(tmp_path / "x.gguf", number, np.zeros((2, FORMATS[number].nbytes), np.uint8))
    assert tensor.shape == (2, FORMATS[number].block)
    with pytest.raises(CheckpointError, match=f"'a' is stored as {FORMATS[number].name}, which is not read"):
        tensor.read()
