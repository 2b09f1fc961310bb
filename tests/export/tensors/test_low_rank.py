"""LowRankUpdate against dense NumPy, and what it keeps resident."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from edgegen_export.checkpoint.safetensors_file import open_safetensors
from edgegen_export.tensors import low_rank
from edgegen_export.tensors.lazy import LazyTensor
from edgegen_export.tensors.low_rank import LowRankUpdate
from tests.export.checkpoint.layouts import numpy_dtype, write_safetensors
from tests.root import ROOT
from tests.systems import needs_proc

DTYPES = ("float32", "float16", "bfloat16")
ROUNDING = 1e-5
"""Of float32 sums of up to 13 terms below 100."""


def lazy(array: NDArray[np.generic]) -> LazyTensor:
    return LazyTensor.from_array(array)


@st.composite
def updates(draw: st.DrawFn) -> tuple[LazyTensor, NDArray[np.float64]]:
    """A low-rank update and what it should be, summed in float64."""
    rows, columns, rank = draw(st.integers(0, 9)), draw(st.integers(0, 9)), draw(st.integers(1, 12))
    rng = np.random.default_rng(draw(st.integers(0, 99)))
    shapes = {"base": (rows, columns), "left": (rows, rank), "right": (rank, columns)}
    arrays = {
        name: rng.standard_normal(shape).astype(numpy_dtype(draw(st.sampled_from(DTYPES))))
        for name, shape in shapes.items()
    }
    scaling = draw(st.sampled_from((0.0, 0.25, 1.0, 2.0, 1 / 3, -4.5)))
    tensors = {name: lazy(array) for name, array in arrays.items()}
    if draw(st.booleans()):  # as a factor is stored, the other way round
        tensors["left"] = lazy(np.ascontiguousarray(arrays["left"].T)).transposed()
    base, left, right = (arrays[name].astype(np.float64) for name in shapes)
    update = LowRankUpdate(tensors["base"], tensors["left"], tensors["right"], scaling)
    return update, base + scaling * (left @ right)


@given(data=st.data(), update=updates(), max_bytes=st.integers(1, 200), block=st.integers(1, 100))
@settings(deadline=None, max_examples=200)
def test_low_rank_slices_are_those_of_the_sum(
    data: st.DataObject, update: tuple[LazyTensor, NDArray[np.float64]], max_bytes: int, block: int
) -> None:
    tensor, array = update
    for kind in data.draw(st.lists(st.sampled_from(("transposed", "take", "concat")), max_size=4)):
        axis = data.draw(st.integers(0, 1))
        if kind == "transposed":
            tensor, array = tensor.transposed(), array.T
        elif kind == "take":
            start = data.draw(st.integers(0, array.shape[axis]))
            stop = data.draw(st.integers(start, array.shape[axis]))
            tensor = tensor.take(start, stop, axis)
            array = array[start:stop] if axis == 0 else array[:, start:stop]
        else:
            other = np.ones_like(array, np.float32)
            tensor = LazyTensor.concat([tensor, lazy(other), tensor], axis)
            array = np.concatenate([array, other, array], axis)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(low_rank, "_BLOCK", block)  # so that small matrices are multiplied in many steps
        assert tensor.shape == array.shape
        whole = tensor.read()
        assert whole.dtype == np.float32
        assert whole.flags.c_contiguous
        np.testing.assert_allclose(whole, array, rtol=1e-6, atol=ROUNDING)
        at = 0
        for start, stop, slab in tensor.slabs(max_bytes):
            assert start == at
            np.testing.assert_allclose(slab, array[start:stop], rtol=1e-6, atol=ROUNDING)
            np.testing.assert_allclose(tensor.rows(start, stop), array[start:stop], rtol=1e-6, atol=ROUNDING)
            at = stop
        assert at == array.shape[0]
        tensor.release()
        np.testing.assert_array_equal(tensor.read(), whole)


def test_a_low_rank_sum_names_its_tensors_and_is_float32(tmp_path: Path) -> None:
    arrays = {"w": np.zeros((3, 4), np.float16), "b": np.zeros((3, 1), np.float32), "a": np.zeros((1, 4), np.float32)}
    w, b, a = open_safetensors(write_safetensors(tmp_path / "x.safetensors", arrays)).values()
    update = LowRankUpdate(w, b, a, 1.0)
    assert update.names == ("w", "b", "a")
    assert update.dtype == "float32"
    assert update.transposed().names == ("w", "a", "b")


def test_shapes_that_do_not_fit_are_refused() -> None:
    base, left, right = (lazy(np.zeros(shape, np.float32)) for shape in ((3, 4), (3, 2), (2, 4)))
    for wrong in ((right, left, base), (base, right, left), (base.take(0, 2), left, right), (base, left, base)):
        with pytest.raises(ValueError, match="product"):
            LowRankUpdate(*wrong, 1.0)
    with pytest.raises(ValueError, match="added"):
        LowRankUpdate(lazy(np.zeros(4, np.float32)), left, right, 1.0)
    with pytest.raises(IndexError):
        LowRankUpdate(base, left, right, 1.0).rows(0, 4)


MEASURE = """
import sys
from pathlib import Path
from edgegen_export.tensors.low_rank import LowRankUpdate
from edgegen_export.checkpoint.safetensors_file import open_safetensors

def peak():
    return next(int(l.split()[1]) for l in open("/proc/self/status") if l.startswith("VmHWM")) / 1024

t = open_safetensors(Path(sys.argv[1]))
tensor = LowRankUpdate(t["w"], t["b"], t["a"], 2.0)
if sys.argv[2] == "transposed":
    tensor = tensor.transposed()
tensor.rows(0, 1)  # the libraries that a product loads
before, total = peak(), 0.0
for start, stop, slab in tensor.slabs():
    total += float(slab[0, 0]) + float(slab[-1].sum())
print(peak() - before)
"""


@needs_proc
@pytest.mark.parametrize("how", ["plain", "transposed"])
def test_slabs_stay_small_in_memory(tmp_path: Path, how: str) -> None:
    arrays = {
        "w": np.ones((50_000, 1024), numpy_dtype("bfloat16")),  # 200 MB of float32
        "b": np.ones((50_000, 16), np.float32),
        "a": np.ones((16, 1024), np.float32),
    }
    path = write_safetensors(tmp_path / "x.safetensors", arrays)
    del arrays
    env = {"PYTHONPATH": f"{ROOT}:{ROOT / 'export'}", "OPENBLAS_NUM_THREADS": "1"}
    command = [sys.executable, "-c", MEASURE, str(path), how]
    done = subprocess.run(command, env=env, check=True, capture_output=True, text=True)
    assert float(done.stdout) < 40
