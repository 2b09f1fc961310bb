"""Files of arrays: safetensors, of which only what lies in the file is read."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from edgegen.bundle.arrays_file import arrays_as_bytes, read_arrays


def test_arrays_come_back_and_their_file_is_the_same_each_time(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in (("b", (3, 2)), ("a.x", (5,)))}
    data = arrays_as_bytes(arrays)
    assert data == arrays_as_bytes(dict(reversed(arrays.items())))
    (tmp_path / "file").write_bytes(data)
    found = read_arrays(tmp_path / "file")
    assert found.keys() == arrays.keys()
    for name, array in arrays.items():
        np.testing.assert_array_equal(found[name], array)
    (tmp_path / "none").write_bytes(arrays_as_bytes({}))
    assert read_arrays(tmp_path / "none") == {}


def _file(header: object, data: bytes = bytes(16)) -> bytes:
    text = json.dumps(header).encode()
    return len(text).to_bytes(8, "little") + text + data


ENTRY: dict[str, Any] = {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "longer than the file"),
        (bytes(7), "longer than the file"),
        ((1 << 60).to_bytes(8, "little"), "longer than the file"),
        (b"\x01" + bytes(7) + b"{", "not JSON"),
        (_file([]), "not an object"),
        (_file({"x": 1}), "'x' is no array"),
        (_file({"x": {**ENTRY, "dtype": "F16"}}), "'x' is no array"),
        (_file({"x": {**ENTRY, "data_offsets": [0]}}), "'x' is no array"),
        (_file({"x": {**ENTRY, "shape": [2, True]}}), "'x' is no array"),
        (_file({"x": {**ENTRY, "shape": [2, 3]}}), "'x' does not lie"),
        (_file({"x": {**ENTRY, "shape": [-2, -2]}}), "'x' does not lie"),
        (_file({"x": {**ENTRY, "shape": [1 << 40, 1 << 40]}}), "'x' does not lie"),
        (_file({"x": {**ENTRY, "data_offsets": [8, 24]}}), "'x' does not lie"),
        (_file({"x": {**ENTRY, "data_offsets": [16, 0]}}), "'x' does not lie"),
    ],
)
def test_what_is_no_such_file_is_refused(tmp_path: Path, content: bytes, said: str) -> None:
    (tmp_path / "file").write_bytes(content)
    with pytest.raises(ValueError, match=said):
        read_arrays(tmp_path / "file")
