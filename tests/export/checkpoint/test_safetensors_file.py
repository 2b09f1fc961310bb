"""Safetensors files: what is read, and that nothing malformed is believed."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.numpy import (
    load_file,  # pyright: ignore[reportUnknownVariableType]
    save_file,  # pyright: ignore[reportUnknownVariableType]
)

from edgegen.errors import CheckpointError
from edgegen_export.checkpoint.safetensors_file import MAX_HEADER, open_safetensors
from tests.export.checkpoint.layouts import write_safetensors

ENTRY = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}


def write(path: Path, header: object, data: bytes = b"\0" * 8) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + data)
    return path


def fault(path: Path) -> str:
    with pytest.raises(CheckpointError) as caught:
        open_safetensors(path)
    assert str(path) in str(caught.value)
    return str(caught.value)


def test_reads_what_the_library_writes(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {
        "a": rng.standard_normal((3, 5)).astype(np.float32),
        "b": rng.standard_normal(7).astype(np.float16),
        "c": rng.standard_normal((2, 2)),
        "d": np.array([[True, False]]),
        "e": np.arange(4, dtype=np.int64),
        "f": np.zeros((0, 3), np.float32),
        "g": np.array(2.5, np.float32),
    }
    path = tmp_path / "x.safetensors"
    save_file(arrays, path, metadata={"format": "np"})
    tensors = open_safetensors(path)
    assert set(tensors) == set(arrays)
    for name, array in arrays.items():
        assert (tensors[name].shape, tensors[name].dtype) == (array.shape, array.dtype.name)
        np.testing.assert_array_equal(tensors[name].read(), array.astype(np.float32))


def test_the_library_reads_what_the_layouts_write(tmp_path: Path) -> None:
    arrays = {"a": np.arange(6, dtype=np.float16).reshape(2, 3), "b": np.ones(1, np.float32)}
    read = load_file(write_safetensors(tmp_path / "x.safetensors", arrays))
    for name, array in arrays.items():
        np.testing.assert_array_equal(read[name], array)


@pytest.mark.parametrize(
    ("dtype", "shape", "size", "name"),
    [
        ("F8_E4M3", [2, 3], 6, "float8_e4m3fn"),
        ("F8_E5M2", [6], 6, "float8_e5m2"),
        ("F4", [4], 2, "float4_e2m1fn"),
        ("C64", [1], 8, "complex64"),
        ("X7_NEW", [5, 5], 3, "X7_NEW"),
    ],
)
def test_other_dtypes_exist_until_they_are_read(
    tmp_path: Path, dtype: str, shape: list[int], size: int, name: str
) -> None:
    header = {
        "odd": {"dtype": dtype, "shape": shape, "data_offsets": [0, size]},
        "fine": {"dtype": "U8", "shape": [1], "data_offsets": [size, size + 1]},
    }
    tensors = open_safetensors(write(tmp_path / "x.safetensors", header, b"\7" * (size + 1)))
    assert (tensors["odd"].shape, tensors["odd"].dtype) == (tuple(shape), name)
    assert tensors["odd"].take(0, 1).shape == (1, *shape[1:])
    for read in (
        tensors["odd"].read,
        lambda: tensors["odd"].rows(0, 1),
        lambda: list(tensors["odd"].slabs()),
    ):
        with pytest.raises(CheckpointError, match=f"'odd' is stored as {dtype}"):
            read()
    tensors["odd"].release()
    assert tensors["fine"].read() == 7


def test_truncated_files_name_both_sizes(tmp_path: Path) -> None:
    path = write_safetensors(tmp_path / "x.safetensors", {"a": np.ones((4, 4), np.float32)})
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    message = fault(path)
    assert "truncated" in message
    assert f"{len(whole)} bytes, it has {len(whole) - 10}" in message
    path.write_bytes(whole[:30])
    assert "truncated" in fault(path)
    assert "30 bytes" in fault(path)
    path.write_bytes(whole[:5])
    assert "5 bytes are too few" in fault(path)
    path.write_bytes(b"")
    assert "0 bytes are too few" in fault(path)
    path.write_bytes(whole + b"more")
    assert "belongs to no tensor" in fault(path)


def test_git_lfs_pointers_say_what_to_run(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 548105171\n", newline="\n")
    assert "git lfs pull" in fault(path)


def test_header_length_is_bounded(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    path.write_bytes((MAX_HEADER + 1).to_bytes(8, "little") + b"{}")
    assert "not a safetensors file" in fault(path)


@pytest.mark.parametrize(
    ("header", "said"),
    [
        (b"{", "malformed"),
        (b"\xff\xfe{}", "malformed"),
        (b'{"a":' * 5000, "malformed"),
        (b'{"a": %s}' % (b"[" * 100_000), "malformed"),
        (b'{"a": 1' + b"0" * 5000 + b"}", "malformed"),
        (b"[]", "not a JSON object"),
        (b'{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},"a":{}}', "'a' occurs twice"),
        ({"a": 1}, "'a': not an object"),
        ({"a": {**ENTRY, "dtype": 3}}, "dtype is 3"),
        ({"a": {**ENTRY, "shape": [2.0]}}, "shape is [2.0]"),
        ({"a": {**ENTRY, "shape": [-2]}}, "shape is [-2]"),
        ({"a": {**ENTRY, "shape": [True, 2]}}, "shape is [True, 2]"),
        ({"a": {**ENTRY, "shape": None}}, "shape is None"),
        ({"a": {**ENTRY, "shape": [0, 2**62, 2**62]}}, "shape is"),
        ({"a": {**ENTRY, "shape": [1] * 40}}, "shape is"),
        ({"a": {**ENTRY, "data_offsets": [8, 0]}}, "data_offsets are [8, 0]"),
        ({"a": {**ENTRY, "data_offsets": [0]}}, "data_offsets are [0]"),
        ({"a": {**ENTRY, "data_offsets": [0, 4]}}, "takes 8 bytes, data_offsets give 4"),
        ({"a": {**ENTRY, "data_offsets": [0, 2**200]}}, "takes 8 bytes"),
        ({"a": {"dtype": "F4", "shape": [3], "data_offsets": [0, 1]}}, "takes 1.5 bytes"),
        ({"a": {**ENTRY, "data_offsets": [4, 12]}}, "leaves a gap"),
        ({"a": ENTRY, "b": {"dtype": "F32", "shape": [1], "data_offsets": [4, 8]}}, "'b' overlaps"),
        ({"a": ENTRY, "b": {**ENTRY, "data_offsets": [8, 16]}}, "truncated"),
        ({"__metadata__": {"a": 1}, "a": ENTRY}, "__metadata__"),
        ({"__metadata__": [], "a": ENTRY}, "__metadata__"),
        ({}, "belongs to no tensor"),
    ],
)
def test_malformed_headers_are_refused(tmp_path: Path, header: Any, said: str) -> None:
    assert said in fault(write(tmp_path / "x.safetensors", header))


def test_every_fault_of_a_safetensors_file_is_listed(tmp_path: Path) -> None:
    header = {"a": 1, "b": {**ENTRY, "shape": [3]}, "c": {**ENTRY, "dtype": None}}
    message = fault(write(tmp_path / "x.safetensors", header))
    assert message.count("\n  - ") == 3


def test_a_name_that_occurs_twice_is_found_among_many(tmp_path: Path) -> None:
    names = b"".join(b'"%d":1,' % n for n in range(200_000))
    assert "'last' occurs twice" in fault(write(tmp_path / "x.safetensors", b'{%s"last":1,"last":1}' % names))


def test_unreadable_files_are_checkpoint_errors(tmp_path: Path) -> None:
    assert "cannot be read" in fault(tmp_path / "absent.safetensors")
    (tmp_path / "folder.safetensors").mkdir()
    with pytest.raises(CheckpointError):
        open_safetensors(tmp_path / "folder.safetensors")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
ENTRIES = st.fixed_dictionaries(
    {},
    optional={
        "dtype": st.sampled_from(["F32", "BF16", "U8", "F8_E4M3", "F4", "?"]) | JSON,
        "shape": st.lists(st.integers(0, 4), max_size=3) | JSON,
        "data_offsets": st.lists(st.integers(0, 40), min_size=2, max_size=2) | JSON,
    },
)


def opens_or_refuses(path: Path) -> None:
    try:
        tensors = open_safetensors(path)
        for tensor in tensors.values():
            tensor.read()
    except CheckpointError:
        pass


@given(header=st.dictionaries(st.text(max_size=4), ENTRIES | JSON, max_size=3), size=st.integers(0, 40))
@settings(deadline=None, max_examples=300)
def test_any_header_opens_or_is_refused(
    tmp_path_factory: pytest.TempPathFactory, header: dict[str, Any], size: int
) -> None:
    opens_or_refuses(write(tmp_path_factory.mktemp("fuzz") / "x.safetensors", header, b"\1" * size))


@given(data=st.data())
@settings(deadline=None, max_examples=200)
def test_any_damage_opens_or_is_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "x.safetensors"
    write_safetensors(path, {"a": np.ones((2, 3), np.float32), "b": np.ones(3, np.float16)})
    content = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path.write_bytes(content[: data.draw(st.integers(0, len(content)))])
    opens_or_refuses(path)


@given(content=st.binary(max_size=64))
@settings(deadline=None)
def test_any_bytes_open_or_are_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.mktemp("fuzz") / "x.safetensors"
    path.write_bytes(content)
    opens_or_refuses(path)
