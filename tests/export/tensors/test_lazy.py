"""LazyTensor against NumPy, and what it keeps resident."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgegen.errors import CheckpointError
from edgegen_export.checkpoint.safetensors_file import open_safetensors
from edgegen_export.tensors import lazy
from edgegen_export.tensors.lazy import LazyTensor
from tests.export.checkpoint.layouts import numpy_dtype, write_safetensors
from tests.root import ROOT
from tests.systems import needs_proc

Draw = Callable[[st.SearchStrategy[Any]], Any]
DTYPES = ("float32", "float16", "bfloat16", "float64", "int8", "uint8", "int32", "int64", "bool")


@st.composite
def arrays(draw: st.DrawFn, ndim: int | None = None) -> NDArray[Any]:
    shape = draw(st.lists(st.integers(0, 7), min_size=ndim or 1, max_size=ndim or 3))
    values = np.random.default_rng(draw(st.integers(0, 9))).integers(-100, 100, shape)
    return values.astype(numpy_dtype(draw(st.sampled_from(DTYPES))))


def derive(draw: Draw, tensor: LazyTensor, array: NDArray[Any]) -> tuple[LazyTensor, NDArray[Any]]:
    """The same chain of transforms on both."""
    kinds = ("transposed", "take", "concat", "reordered", "affine", "scaled", "reshaped", "unit rows")
    for kind in draw(st.lists(st.sampled_from(kinds), max_size=4)):
        axis = draw(st.integers(0, array.ndim - 1))
        if kind == "transposed" and array.ndim == 2:
            tensor, array = tensor.transposed(), array.T
        elif kind == "take":
            start = draw(st.integers(0, array.shape[axis]))
            stop = draw(st.integers(start, array.shape[axis]))
            tensor = tensor.take(start, stop, axis)
            array = array[(slice(None),) * axis + (slice(start, stop),)]
        elif kind == "reordered":
            rows = np.array(draw(st.permutations(range(len(array)))), np.intp)
            tensor, array = tensor.reordered(rows), array[rows]
        elif kind == "concat":
            other = np.zeros_like(array).astype(numpy_dtype(draw(st.sampled_from(("float32", "float16")))))
            parts = [tensor, LazyTensor.from_array(other), tensor]
            tensor = LazyTensor.concat(parts, axis)
            array = np.concatenate([array.astype(np.float32), other.astype(np.float32), array.astype(np.float32)], axis)
        elif kind == "affine":
            scale, shift = draw(st.sampled_from(((1.0, 0.0), (0.3, 0.0), (1.0, 1.0), (-12.5, 0.7))))
            tensor = tensor.affine(scale, shift)
            array = array.astype(np.float32) * np.float32(scale) + np.float32(shift)
        elif kind == "scaled":
            factors = np.linspace(-2, 3, array.shape[axis], dtype=np.float32)
            tensor = tensor.scaled(factors, axis)
            array = array.astype(np.float32) * np.expand_dims(factors, tuple(set(range(array.ndim)) - {axis}))
        elif kind == "unit rows" and array.ndim == 2:
            norms = np.linalg.norm(array.astype(np.float32).astype(np.float64), axis=1)
            tensor = tensor.unit_rows()
            array = array.astype(np.float32) * (1 / np.maximum(norms, 1e-12)).astype(np.float32)[:, None]
        elif kind == "reshaped":
            shape = draw(st.sampled_from((array.shape[::-1], (1, *array.shape), (array.size,))))
            tensor, array = tensor.reshaped(shape), array.reshape(shape)
    return tensor, array


def check(tensor: LazyTensor, array: NDArray[Any], max_bytes: int) -> None:
    wanted = array.astype(np.float32)
    assert tensor.shape == array.shape
    whole = tensor.read()
    assert whole.dtype == np.float32
    assert whole.flags.c_contiguous
    np.testing.assert_array_equal(whole, wanted)
    at = 0
    for start, stop, slab in tensor.slabs(max_bytes):
        assert start == at
        assert slab.flags.c_contiguous
        assert slab.nbytes <= max_bytes or stop - start == 1
        np.testing.assert_array_equal(slab, wanted[start:stop])
        np.testing.assert_array_equal(tensor.rows(start, stop), wanted[start:stop])
        at = stop
    assert at == array.shape[0]
    tensor.release()
    np.testing.assert_array_equal(tensor.read(), wanted)


@given(data=st.data(), array=arrays(), max_bytes=st.integers(1, 200))
@settings(deadline=None)
def test_transforms_agree_with_numpy(data: st.DataObject, array: NDArray[Any], max_bytes: int) -> None:
    tensor = LazyTensor.from_array(array)
    assert tensor.dtype == array.dtype.name
    check(*derive(data.draw, tensor, array), max_bytes)


@given(data=st.data(), made=st.lists(arrays(), min_size=1, max_size=4), block=st.integers(8, 64))
@settings(deadline=None, max_examples=60)
def test_transforms_of_a_file_agree_with_numpy(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, made: list[NDArray[Any]], block: int
) -> None:
    path = tmp_path_factory.mktemp("file") / "x.safetensors"
    write_safetensors(path, {str(i): array for i, array in enumerate(made)})  # offsets not aligned, too
    tensors = open_safetensors(path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lazy, "_BLOCK", block)  # so that small tensors are copied in many steps
        for i, array in enumerate(made):
            assert tensors[str(i)].dtype == array.dtype.name
            check(*derive(data.draw, tensors[str(i)], array), 40)


def test_float32_rows_are_views_of_the_file(tmp_path: Path) -> None:
    array = np.arange(12, dtype=np.float32).reshape(4, 3)
    tensor = open_safetensors(write_safetensors(tmp_path / "x.safetensors", {"a": array}))["a"]
    rows = tensor.rows(1, 3)
    assert rows.base is not None
    assert not rows.flags.writeable
    with pytest.raises(ValueError, match="read-only"):
        rows[0, 0] = 1


def test_scalars_are_read_whole(tmp_path: Path) -> None:
    path = write_safetensors(tmp_path / "x.safetensors", {"a": np.array(-1e4, np.float16)})
    tensor = open_safetensors(path)["a"]
    assert tensor.shape == ()
    assert tensor.read() == np.float32(-1e4)
    tensor.release()
    with pytest.raises(IndexError, match="0-d"):
        tensor.rows(0, 1)
    with pytest.raises(IndexError, match="0-d"):
        next(tensor.slabs())


def test_values_beyond_float32_become_infinite_quietly(tmp_path: Path) -> None:
    values = np.array([1e300, -1e300, np.nan, 1.5])
    tensor = open_safetensors(write_safetensors(tmp_path / "x.safetensors", {"a": values}))["a"]
    np.testing.assert_array_equal(tensor.read(), np.array([np.inf, -np.inf, np.nan, 1.5], np.float32))


def test_from_array_does_not_lock_the_callers_array() -> None:
    array = np.zeros(3, np.float32)
    LazyTensor.from_array(array)
    array[0] = 1


def test_a_transform_that_changes_nothing_is_the_tensor_itself() -> None:
    tensor = LazyTensor.from_array(np.ones((2, 3), np.float16))
    assert tensor.affine(1.0) is tensor
    assert tensor.affine(1.0, 0.0) is tensor
    assert tensor.reshaped((2, 3)) is tensor


def test_views_keep_the_names_and_the_dtype(tmp_path: Path) -> None:
    arrays = {name: np.ones((2, 3), np.float16) for name in "ab"}
    tensors = open_safetensors(write_safetensors(tmp_path / "x.safetensors", arrays))
    both = LazyTensor.concat([tensors["a"], tensors["b"]])
    for view in (both.affine(2.0), both.reshaped((3, 4)), both.affine(2.0).transposed(), both.affine(2.0).take(0, 3)):
        assert view.names == ("a", "b")
        assert view.dtype == "float16"
    assert both.reshaped((12,)).take(0, 1).names == ("a, b",)


def test_affine_values_are_computed_in_float32_and_the_file_is_not_touched(tmp_path: Path) -> None:
    values = np.array([[1 / 3, 60000.0], [-(2.0**-24), 0.0]], np.float16)
    path = write_safetensors(tmp_path / "x.safetensors", {"a": values})
    before = path.read_bytes()
    found = open_safetensors(path)["a"].affine(1e3, 1.0).read()
    np.testing.assert_array_equal(found, values.astype(np.float32) * np.float32(1e3) + np.float32(1))
    found[0, 0] = 7  # an array of its own
    assert path.read_bytes() == before


def test_affine_values_beyond_float32_become_infinite_quietly() -> None:
    values = np.array([3e38, -3e38, np.inf, np.nan], np.float32)
    expected = np.array([np.inf, -np.inf, np.inf, np.nan], np.float32)
    np.testing.assert_array_equal(LazyTensor.from_array(values).affine(10.0, 1.0).read(), expected)
    np.testing.assert_array_equal(LazyTensor.from_array(values[2:]).affine(0.0).read(), [np.nan, np.nan])


@pytest.mark.parametrize("shape", [(5,), (2, 2), (), (6, 0)])
def test_a_shape_of_another_size_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"shape \(2, 3\) cannot be seen as"):
        LazyTensor.from_array(np.zeros((2, 3), np.float32)).reshaped(shape)


def test_a_scalar_can_be_scaled_and_given_an_axis(tmp_path: Path) -> None:
    path = write_safetensors(tmp_path / "x.safetensors", {"a": np.array(3, np.float32)})
    scalar = open_safetensors(path)["a"]
    assert scalar.affine(2.0, 1.0).read() == 7
    np.testing.assert_array_equal(scalar.reshaped((1,)).rows(0, 1), [3])
    assert LazyTensor.from_array(np.ones(1, np.float32)).reshaped(()).read().shape == ()


def test_mixed_dtypes_join_as_float32() -> None:
    one, two = np.ones((1, 2), np.float16), np.ones((1, 2), np.float32)
    make = LazyTensor.from_array
    assert LazyTensor.concat([make(one), make(one)]).dtype == "float16"
    assert LazyTensor.concat([make(one), make(two)]).dtype == "float32"
    assert "shape=(1, 2)" in repr(make(one))


def test_wrong_calls() -> None:
    tensor = LazyTensor.from_array(np.zeros((2, 3), np.float32))
    for bad in (lambda: tensor.rows(0, 3), lambda: tensor.rows(-1, 1), lambda: tensor.rows(2, 1)):
        with pytest.raises(IndexError):
            bad()
    with pytest.raises(IndexError, match="axis 2"):
        tensor.take(0, 1, axis=2)
    with pytest.raises(IndexError, match="0:4"):
        tensor.take(0, 4, axis=1)
    with pytest.raises(ValueError, match="2-D"):
        LazyTensor.from_array(np.zeros(3)).transposed()
    with pytest.raises(ValueError, match="nothing"):
        LazyTensor.concat([])
    with pytest.raises(ValueError, match="do not concatenate"):
        LazyTensor.concat([tensor, tensor.take(0, 2, axis=1)])
    with pytest.raises(IndexError, match="axis 2"):
        LazyTensor.concat([tensor, tensor], axis=2)
    with pytest.raises(IndexError, match="rows 1 to 2"):
        tensor.reordered(np.array([1, 2]))
    with pytest.raises(TypeError, match="complex"):
        LazyTensor.from_array(np.zeros(3, np.complex64))


def test_a_joined_tensor_that_cannot_be_read_names_the_part(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    header = b'{"q":{"dtype":"F8_E4M3","shape":[2,2],"data_offsets":[0,4]}}'
    path.write_bytes(len(header).to_bytes(8, "little") + header + b"\0" * 4)
    bad = open_safetensors(path)["q"]
    joined = LazyTensor.concat([LazyTensor.from_array(np.zeros((1, 2), np.float32)), bad.transposed()])
    assert joined.shape == (3, 2)
    assert joined.rows(0, 1).shape == (1, 2)
    with pytest.raises(CheckpointError, match="'q' is stored as F8_E4M3"):
        joined.read()


MEASURE = """
import sys
from pathlib import Path
from edgegen_export.checkpoint.safetensors_file import open_safetensors
from edgegen_export.architecture.tensor_layouts import Interleaved

def peak():
    return next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("VmHWM")) / 1024

path, how = sys.argv[1:]
tensor = open_safetensors(Path(path))["a"]
if how == "transposed":
    tensor = tensor.transposed()
if how == "scaled":
    tensor = tensor.affine(3.0, 1.0)
if how == "interleaved":
    tensor, *_ = Interleaved("a", 50).apply([tensor], [(tensor.shape[0] // 2, 1024)] * 2)
before, total = peak(), 0.0
for start, stop, slab in tensor.slabs():
    total += float(slab[0, 0]) + float(slab[-1].sum())
print(peak() - before)
"""


@needs_proc
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_slabs_stay_small_in_memory(tmp_path: Path, dtype: str) -> None:
    rows = 25_000 if dtype == "float32" else 50_000
    array = np.ones((rows, 1024), numpy_dtype(dtype))  # 100 MB
    path = write_safetensors(tmp_path / "x.safetensors", {"a": array})
    del array
    for how in ("plain", "transposed", "scaled", "interleaved"):
        command = [sys.executable, "-c", MEASURE, str(path), how]
        env = {"PYTHONPATH": f"{ROOT}:{ROOT / 'export'}", "OPENBLAS_NUM_THREADS": "1"}
        done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
        assert float(done.stdout) < 40, how


@pytest.mark.parametrize(
    ("other", "equal"),
    [
        ([[1, np.nan], [3, 4]], True),
        ([[1, 2], [3, 4]], False),
        ([[1, np.nan], [3, 5]], False),
        ([[1, np.nan, 3, 4]], False),
        ([1, np.nan, 3, 4], False),
    ],
)
def test_equal_tensors(other: Any, equal: bool) -> None:
    tensor = LazyTensor.from_array(np.array([[1, np.nan], [3, 4]], np.float32))
    assert tensor.equals(LazyTensor.from_array(np.array(other, np.float32))) is equal
