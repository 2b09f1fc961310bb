"""Arrays of floats in one file, by name: safetensors, all in float32, of which a reader of our own takes no other."""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, cast

import numpy as np
from numpy.typing import NDArray
from safetensors.numpy import save

from edgegen.strict_json import decode
from edgegen.system import open_regular

Arrays = Mapping[str, NDArray[np.float32]]

_LENGTH = 8
_MOST_HEADER = 1 << 24


@dataclass(frozen=True, slots=True)
class _Entry:
    """An array in the header."""

    dtype: Literal["F32"]
    shape: tuple[int, ...]
    data_offsets: tuple[int, ...]


def arrays_as_bytes(arrays: Arrays) -> bytes:
    """The contents of a file of ``arrays``; the same for the same arrays."""
    return save({name: np.ascontiguousarray(array, "<f4") for name, array in arrays.items()})


def read_arrays(path: Path) -> dict[str, NDArray[np.float32]]:
    """The arrays of a file, which stay mapped to it.

    Raises:
        OSError: it cannot be read.
        ValueError: it is not such a file.
    """
    with open_regular(path) as file:
        data = np.memmap(file, np.uint8, "r") if path.stat().st_size else np.empty(0, np.uint8)
    length = int.from_bytes(data[:_LENGTH].tobytes(), "little")
    if len(data) < _LENGTH or length > min(_MOST_HEADER, len(data) - _LENGTH):
        raise ValueError("its header is longer than the file")
    try:
        header: object = json.loads(data[_LENGTH : _LENGTH + length].tobytes())
    except (ValueError, RecursionError):
        raise ValueError("its header is not JSON") from None
    if not isinstance(header, dict):
        raise ValueError("its header is not an object")
    values = data[_LENGTH + length :]
    return {name: _array(name, entry, values) for name, entry in cast(dict[str, object], header).items()}


def _array(name: str, entry: object, values: NDArray[np.uint8]) -> NDArray[np.float32]:
    problems = list[str]()
    decoded: _Entry | None = decode(_Entry, entry, name, problems)
    if problems or decoded is None or len(decoded.data_offsets) != 2:
        raise ValueError(f"{name!r} is no array of float32")
    shape, (begin, end) = decoded.shape, decoded.data_offsets
    fits = all(0 <= size <= len(values) for size in shape) and 0 <= begin <= end <= len(values)
    if not fits or end - begin != 4 * math.prod(shape):
        raise ValueError(f"{name!r} does not lie in the file")
    return np.frombuffer(values[begin:end].tobytes(), "<f4").reshape(shape)
