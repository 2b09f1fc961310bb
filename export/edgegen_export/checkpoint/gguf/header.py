"""A GGUF file's header: metadata and tensor descriptions, believed as far as they are checked against the file."""

import math
import struct
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from edgegen.errors import CheckpointError, refuse_any
from edgegen_export.checkpoint.gguf.formats import FORMATS, Format
from edgegen_export.tensors.mapped_file import MappedFile

MAGIC = b"GGUF"
VERSIONS = (2, 3)
ARCHITECTURE = "general.architecture"
_ALIGNMENT = "general.alignment"
_LFS_POINTER = b"version https://git-lfs"
_MAX_AXES = 4
_MAX_ELEMENTS = 1 << 56  # beyond this NumPy could not describe the shape
_MAX_ITEMS = 1 << 24  # of one metadata array; the largest vocabularies have a quarter of a million
_MAX_DEPTH = 4
_SMALLEST_TENSOR, _SMALLEST_FIELD = 24, 13  # bytes that a description takes at least

_STRING, _ARRAY, _FLOAT32, _BOOL = 8, 9, 6, 7
_SCALARS = {
    0: np.dtype("u1"),
    1: np.dtype("i1"),
    2: np.dtype("<u2"),
    3: np.dtype("<i2"),
    4: np.dtype("<u4"),
    5: np.dtype("<i4"),
    _FLOAT32: np.dtype("<f4"),
    _BOOL: np.dtype("?"),
    10: np.dtype("<u8"),
    11: np.dtype("<i8"),
    12: np.dtype("<f8"),
}


class TensorEntry(NamedTuple):
    """Where a tensor lies: its format, shape (rows first, as in NumPy) and bytes of the file."""

    format: Format
    shape: tuple[int, ...]
    offset: int
    nbytes: int


class GgufHeader(NamedTuple):
    """Metadata as plain Python values, and the tensors by name."""

    metadata: dict[str, Any]
    tensors: dict[str, TensorEntry]


def read_header(file: MappedFile) -> GgufHeader:
    """The checked header of a GGUF file of version 2 or 3, little endian.

    Raises ``CheckpointError``, naming the file and every problem found, unless names are unique and every tensor lies
    aligned inside the file, clear of the others, with the bytes that its type and shape ask for.
    """
    try:
        return _Reader(file).header()
    except _MalformedError as error:
        raise CheckpointError(f"{file.path}: {error}") from None


class _MalformedError(Exception):
    """A problem of the header, without the file's name."""


class _Reader:
    """Reads the header from front to back; every length is checked before anything of that length is made."""

    def __init__(self, file: MappedFile) -> None:
        self._file = file
        self._at = 0

    def header(self) -> GgufHeader:
        self._begin(self._file.path)
        tensor_count = self._count("tensors", _SMALLEST_TENSOR)
        field_count = self._count("metadata keys", _SMALLEST_FIELD)
        problems: list[str] = []
        metadata: dict[str, Any] = {}
        for _ in range(field_count):
            key = self._text("a metadata key", strict=True)
            value = self._value(key, self._u32(), 0)
            if key in metadata:
                problems.append(f"metadata key {key!r} occurs twice")
            metadata[key] = value
        found = [self._description() for _ in range(tensor_count)]
        alignment = metadata.get(_ALIGNMENT, 32)
        if type(alignment) is not int or alignment < 1 or alignment & (alignment - 1):
            raise _MalformedError(f"{_ALIGNMENT} is {alignment!r}, not a power of two")
        start = -(-self._at // alignment) * alignment
        entries: dict[str, TensorEntry] = {}
        for name, shape, type_number, offset in found:
            entry = _entry(shape, type_number, start, offset, alignment)
            if name in entries:
                problems.append(f"tensor {name!r} occurs twice")
            elif isinstance(entry, str):
                problems.append(f"tensor {name!r}: {entry}")
            else:
                entries[name] = entry
        problems += _layout_problems(entries, self._file.size)
        refuse_any(problems, _MalformedError)
        return GgufHeader(metadata, entries)

    def _begin(self, path: Path) -> None:
        if self._file.raw(0, len(_LFS_POINTER)) == _LFS_POINTER:
            raise _MalformedError(f"a Git LFS pointer, not the model: run `git lfs pull` in {path.parent}")
        magic = self._bytes(4, "the magic number")
        if magic != MAGIC:
            raise _MalformedError(f"not a GGUF file: it begins with {magic!r}, not {MAGIC!r}")
        version = self._u32()
        if version and not version & 0xFFFF:
            raise _MalformedError(
                "a big-endian GGUF file, which is not read: convert it with `gguf-convert-endian FILE little` "
                "(pip install gguf)"
            )
        if version not in VERSIONS:
            known = " and ".join(map(str, VERSIONS))
            raise _MalformedError(f"GGUF version {version}, only {known} are read: convert the original model again")

    def _description(self) -> tuple[str, tuple[int, ...], int, int]:
        """A tensor's name, shape, type number and offset, as they are written."""
        name = self._text("a tensor's name", strict=True)
        axes = self._u32()
        if axes > _MAX_AXES:
            raise _MalformedError(f"tensor {name!r} has {axes} axes, at most {_MAX_AXES} are possible")
        sizes = tuple(self._u64() for _ in range(axes))
        return name, sizes[::-1], self._u32(), self._u64()

    def _value(self, key: str, kind: int, depth: int) -> Any:
        if kind == _STRING:
            return self._text(key)
        if kind == _ARRAY:
            return self._array(key, depth)
        if kind not in _SCALARS:
            raise _MalformedError(f"metadata key {key!r} has the unknown type {kind}")
        dtype = _SCALARS[kind]
        value = np.frombuffer(self._bytes(dtype.itemsize, key), dtype)[0]
        # The shortest decimal that means the same float32: what a config.json would say.
        return float(str(value)) if kind == _FLOAT32 else value.item()

    def _array(self, key: str, depth: int) -> list[Any]:
        kind, count = self._u32(), self._u64()
        dtype = _SCALARS.get(kind)
        if depth >= _MAX_DEPTH or (dtype is None and kind not in (_STRING, _ARRAY)):
            raise _MalformedError(f"metadata key {key!r} is an array of the unknown type {kind}")
        smallest = 8 if dtype is None else dtype.itemsize
        if count > _MAX_ITEMS or count * smallest > self._left:
            raise _MalformedError(f"metadata key {key!r} would have {count} items: the file is truncated or broken")
        if dtype is not None:
            return cast(list[Any], np.frombuffer(self._bytes(count * dtype.itemsize, key), dtype).tolist())
        return [self._value(key, kind, depth + 1) for _ in range(count)]

    def _text(self, what: str, *, strict: bool = False) -> str:
        raw = self._bytes(self._u64(), what)
        if strict and not raw:
            raise _MalformedError(f"{what} is empty")
        decoded = raw.decode(errors="replace")
        if strict and ("\N{REPLACEMENT CHARACTER}" in decoded or not decoded.isprintable()):
            raise _MalformedError(f"{what} is not readable text: {raw[:40]!r}")
        return decoded

    def _count(self, what: str, smallest: int) -> int:
        count = self._u64()
        if count * smallest > self._left:
            raise _MalformedError(f"it would have {count} {what}, more than the file has room for")
        return count

    def _u32(self) -> int:
        return struct.unpack("<I", self._bytes(4, "its header"))[0]

    def _u64(self) -> int:
        return struct.unpack("<Q", self._bytes(8, "its header"))[0]

    @property
    def _left(self) -> int:
        return self._file.size - self._at

    def _bytes(self, count: int, what: str) -> bytes:
        if count > self._left:
            raise _MalformedError(f"truncated: it ends at byte {self._file.size}, inside {what}")
        raw = self._file.raw(self._at, count)
        self._at += count
        return raw


def _entry(shape: tuple[int, ...], type_number: int, start: int, offset: int, alignment: int) -> TensorEntry | str:
    """A tensor's place in the file, or what is wrong with its description."""
    if math.prod(n for n in shape if n) > _MAX_ELEMENTS:
        return f"shape {list(shape)} is beyond all bounds"
    known = FORMATS.get(type_number)
    if known is None:
        return f"is stored in format {type_number}, which is not known"
    if known.block > 1 and (not shape or shape[-1] % known.block):
        return f"rows of {shape[-1] if shape else 0} values are no whole blocks of {known.block} ({known.name})"
    if offset % alignment:
        return f"begins at byte {offset} of the data, which is not aligned to {alignment}"
    return TensorEntry(known, shape, start + offset, math.prod(shape) // known.block * known.nbytes)


def _layout_problems(entries: dict[str, TensorEntry], size: int) -> list[str]:
    """Tensors that overlap, and those beyond the end of the file."""
    problems: list[str] = []
    end = 0
    for name, entry in sorted(entries.items(), key=lambda item: (item[1].offset, item[1].nbytes)):
        if entry.offset < end and entry.nbytes:
            problems.append(f"tensor {name!r} overlaps the tensor before it")
        end = max(end, entry.offset + entry.nbytes)
    if end > size:
        problems.append(f"the file is truncated: its tensors end at byte {end}, it has {size}")
    return problems
