"""Safetensors files: the header parsed and checked, the tensors memory-mapped and not read."""

import json
import math
from pathlib import Path
from typing import Any, NamedTuple, cast

import ml_dtypes
import numpy as np

from edgegen.errors import CheckpointError, refuse_any
from edgegen_export.tensors.lazy import ArrayTensor, LazyTensor
from edgegen_export.tensors.mapped_file import MappedFile

MAX_HEADER = 100_000_000  # bytes, the limit of the reference implementation
_MAX_AXES = 32
_MAX_ELEMENTS = 1 << 56  # beyond this NumPy could not describe the shape
_LFS_POINTER = b"version https://git-lfs"


class _Format(NamedTuple):
    name: str
    bits: int
    dtype: np.dtype[Any] | None  # None: described, but not read
    is_number: bool = True  # not for bytes that are read with a scale only


_FORMATS = {
    "BOOL": _Format("bool", 8, np.dtype(np.bool_)),
    "U8": _Format("uint8", 8, np.dtype(np.uint8)),
    "I8": _Format("int8", 8, np.dtype(np.int8)),
    "U16": _Format("uint16", 16, np.dtype("<u2")),
    "I16": _Format("int16", 16, np.dtype("<i2")),
    "U32": _Format("uint32", 32, np.dtype("<u4")),
    "I32": _Format("int32", 32, np.dtype("<i4")),
    "U64": _Format("uint64", 64, np.dtype("<u8")),
    "I64": _Format("int64", 64, np.dtype("<i8")),
    "F16": _Format("float16", 16, np.dtype("<f2")),
    "BF16": _Format("bfloat16", 16, np.dtype(ml_dtypes.bfloat16)),
    "F32": _Format("float32", 32, np.dtype("<f4")),
    "F64": _Format("float64", 64, np.dtype("<f8")),
    "C64": _Format("complex64", 64, None),
    "F8_E4M3": _Format("float8_e4m3fn", 8, np.dtype(np.uint8), is_number=False),
    "F8_E5M2": _Format("float8_e5m2", 8, np.dtype(np.uint8), is_number=False),
    "F8_E8M0": _Format("float8_e8m0fnu", 8, np.dtype(np.uint8), is_number=False),
    "F6_E2M3": _Format("float6_e2m3fn", 6, None),
    "F6_E3M2": _Format("float6_e3m2fn", 6, None),
    "F4": _Format("float4_e2m1fn", 4, None),
}


class _Entry(NamedTuple):
    format: str
    shape: tuple[int, ...]
    begin: int  # bytes from the end of the header
    end: int


def open_safetensors(path: Path) -> dict[str, LazyTensor]:
    """The tensors of a safetensors file by name, over one memory map.

    Raises ``CheckpointError``, naming the file and every problem found, unless the header is valid JSON whose
    tensors fill the rest of the file exactly, without gap or overlap, each with the bytes that its dtype and
    shape ask for.
    """
    try:
        if path.stat().st_size < 8:
            raise CheckpointError(f"{path}: {path.stat().st_size} bytes are too few for a safetensors file")
        file = MappedFile(path)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror or error}") from error
    entries, data_start = _read_header(file)
    return {name: _lazy(file, name, entry, data_start) for name, entry in entries.items()}


def _lazy(file: MappedFile, name: str, entry: _Entry, data_start: int) -> LazyTensor:
    known = _FORMATS.get(entry.format)
    if known is None or known.dtype is None:
        shape_only = np.broadcast_to(np.uint8(0), entry.shape)
        dtype = known.name if known else entry.format
        return ArrayTensor(shape_only, name=name, dtype=dtype, unreadable=entry.format)
    array = file.view(data_start + entry.begin, entry.end - entry.begin, known.dtype, entry.shape)
    unreadable = None if known.is_number else entry.format
    return ArrayTensor(array, name=name, file=file, dtype=known.name, unreadable=unreadable)


def _read_header(file: MappedFile) -> tuple[dict[str, _Entry], int]:
    """The checked entries of the header, and where the data starts."""
    where = file.path
    if file.raw(0, len(_LFS_POINTER)) == _LFS_POINTER:
        raise CheckpointError(f"{where} is a Git LFS pointer, not the weights: run `git lfs pull` in {where.parent}")
    length = int.from_bytes(file.raw(0, 8), "little")
    if length > MAX_HEADER:
        raise CheckpointError(
            f"{where} is not a safetensors file: its header would be {length} bytes long, the limit is {MAX_HEADER}"
        )
    if 8 + length > file.size:
        raise CheckpointError(
            f"{where} is truncated: its header ends at byte {8 + length}, the file has {file.size} bytes"
        )
    try:
        header: object = json.loads(file.raw(8, length).decode(), object_pairs_hook=_no_duplicates)
    except (ValueError, RecursionError) as error:  # ValueError: bad UTF-8, bad JSON, a name twice
        raise CheckpointError(f"{where}: the safetensors header is malformed: {error}") from error
    if not isinstance(header, dict):
        raise CheckpointError(f"{where}: the safetensors header is not a JSON object")

    problems: list[str] = []
    entries: dict[str, _Entry] = {}
    for name, value in cast(dict[str, object], header).items():
        if name == "__metadata__":
            if not _is_metadata(value):
                problems.append("__metadata__ is not an object of strings")
            continue
        entry = _entry(value)
        if isinstance(entry, str):
            problems.append(f"tensor {name!r}: {entry}")
        else:
            entries[name] = entry
    if not problems:
        problems = _layout_problems(entries, 8 + length, file.size)
    refuse_any(problems, CheckpointError, f"{where}: ")
    return entries, 8 + length


def _no_duplicates(pairs: list[tuple[str, object]]) -> dict[str, object]:
    unique = dict(pairs)
    if len(unique) != len(pairs):
        seen = set[str]()
        twice = next(name for name, _ in pairs if name in seen or seen.add(name))
        raise ValueError(f"{twice!r} occurs twice")
    return unique


def _is_metadata(value: object) -> bool:
    if value is None:
        return True
    return isinstance(value, dict) and all(isinstance(v, str) for v in cast(dict[str, object], value).values())


def _entry(value: object) -> _Entry | str:
    """A header entry, or what is wrong with it."""
    if not isinstance(value, dict):
        return "not an object"
    fields = cast(dict[str, object], value)
    dtype, shape, offsets = fields.get("dtype"), fields.get("shape"), fields.get("data_offsets")
    if not isinstance(dtype, str):
        return f"dtype is {dtype!r}, not a string"
    sizes, bounds = _naturals(shape), _naturals(offsets)
    if sizes is None or len(sizes) > _MAX_AXES or math.prod(n for n in sizes if n) > _MAX_ELEMENTS:
        return f"shape is {_shown(shape)}, not a list of sizes"
    if bounds is None or len(bounds) != 2 or bounds[0] > bounds[1]:
        return f"data_offsets are {_shown(offsets)}, not a begin and an end"
    begin, end = bounds
    known = _FORMATS.get(dtype)
    if known is not None:
        bits = known.bits * math.prod(sizes)
        if bits != 8 * (end - begin):
            return f"{dtype} of shape {list(sizes)} takes {bits / 8:g} bytes, data_offsets give {end - begin}"
    return _Entry(dtype, sizes, begin, end)


def _naturals(value: object) -> tuple[int, ...] | None:
    """A JSON list of integers ≥ 0, else None."""
    if not isinstance(value, list):
        return None
    items = cast(list[object], value)
    numbers = tuple(i for i in items if type(i) is int and i >= 0)  # a bool is an int, but not a size
    return numbers if len(numbers) == len(items) else None


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except RecursionError:
        return "nested too deeply"
    return text if len(text) <= 80 else text[:77] + "..."


def _layout_problems(entries: dict[str, _Entry], start: int, size: int) -> list[str]:
    """Return the reasons why the tensors do not fill bytes ``start`` to ``size`` of the file exactly, in order."""
    problems: list[str] = []
    at = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].begin, item[1].end)):
        if entry.begin != at:
            kind = "overlaps the tensor before it" if entry.begin < at else "leaves a gap before it"
            problems.append(f"tensor {name!r} {kind}: it begins at byte {entry.begin} of the data, not at {at}")
        at = max(at, entry.end)
    if start + at > size:
        problems.append(f"the file is truncated: its header describes {start + at} bytes, it has {size}")
    elif start + at < size:
        problems.append(f"its header describes {start + at} bytes, the file has {size}: the rest belongs to no tensor")
    return problems
