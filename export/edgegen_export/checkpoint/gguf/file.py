"""GgufFile: a GGUF file, or all parts of a split one, opened: metadata parsed, tensors mapped and not read."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from edgegen.errors import CheckpointError, refuse_any
from edgegen_export.checkpoint.gguf.header import ARCHITECTURE, GgufHeader, TensorEntry, read_header
from edgegen_export.checkpoint.gguf.quantized_tensor import Mxfp4Rows, QuantizedTensor
from edgegen_export.checkpoint.weight_files import gguf_parts, listed
from edgegen_export.tensors.lazy import ArrayTensor, LazyTensor
from edgegen_export.tensors.mapped_file import MappedFile
from edgegen_export.tensors.stacked import Stacked

_MODEL = (None, "model")
_TOWER = "clip"
"""The architecture that files of towers say; old ones say no type."""
_SMALLEST_FILE = 24


class GgufFile(NamedTuple):
    """Metadata by key, as plain Python values, and lazy tensors under the file's own names."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: dict[str, LazyTensor]


def open_gguf(path: Path) -> GgufFile:
    """The metadata and tensors of a GGUF file over a memory map; any part of a split file opens all of them.

    Raises ``CheckpointError`` when a header is malformed, a part is missing, or there is no model in it.
    """
    paths = [path.with_name(name) for name in gguf_parts(path.name)]
    if missing := [part.name for part in paths if len(paths) > 1 and not part.is_file()]:
        raise CheckpointError(f"{path} is one of {len(paths)} parts; missing beside it: {listed(missing)}")
    opened = [_open(part) for part in paths]
    metadata = opened[0][1].metadata
    tensors: dict[str, LazyTensor] = {}
    problems = _faults(metadata, len(paths))
    for part, (file, header) in zip(paths, opened, strict=True):
        problems += [
            f"tensor {name!r} of {part.name} is in a part before it" for name in header.tensors.keys() & tensors
        ]
        tensors |= {name: _lazy(file, name, entry) for name, entry in header.tensors.items()}
    expected = metadata.get("split.tensors.count", len(tensors))
    if len(paths) > 1 and expected != len(tensors):
        problems.append(f"its parts hold {len(tensors)} tensors, its header promises {expected}")
    if not problems and not tensors:
        problems.append("it holds no tensors, a vocabulary at most")
    refuse_any(problems, CheckpointError, f"{path}: ")
    return GgufFile(path, metadata, tensors)


def _open(path: Path) -> tuple[MappedFile, GgufHeader]:
    try:
        size = path.stat().st_size
        if size < _SMALLEST_FILE:
            raise CheckpointError(f"{path}: {size} bytes are too few for a GGUF file")
        file = MappedFile(path)
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror or error}") from error
    return file, read_header(file)


def _faults(metadata: Mapping[str, Any], parts: int) -> list[str]:
    """Why this metadata does not describe a whole model in ``parts`` files."""
    problems: list[str] = []
    kind = metadata.get("general.type")
    if kind == "mmproj" or metadata.get(ARCHITECTURE) == _TOWER:
        problems.append("it holds a tower for pictures or sound, not a language model: that is in a file beside it")
    elif kind not in _MODEL:
        problems.append(f"it holds a GGUF of type {kind!r}, not a model")
    elif not isinstance(metadata.get(ARCHITECTURE), str):
        problems.append(f"it has no {ARCHITECTURE}, so it cannot be said what model it holds")
    count = metadata.get("split.count", 0) or 1
    if type(count) is not int:
        problems.append(f"its split.count is {count!r}, not a number")
    elif count != parts:
        problems.append(
            f"it is one of {count} parts, and they are found by name only: name them <name>-00001-of-{count:05}.gguf"
            if parts == 1
            else f"its name says {parts} parts, its header {count}"
        )
    return problems


def _lazy(file: MappedFile, name: str, entry: TensorEntry) -> LazyTensor:
    stored = entry.format
    if stored.dtype is not None:
        array = file.view(entry.offset, entry.nbytes, stored.dtype, entry.shape)
        return ArrayTensor(array, name=name, file=file, dtype=stored.dtype.newbyteorder("=").name)
    if not stored.readable or len(entry.shape) not in (2, 3) or (len(entry.shape) == 3 and not entry.nbytes):
        shape_only = np.broadcast_to(np.uint8(0), entry.shape)
        kind = stored.name if not stored.readable else f"{stored.name} of {len(entry.shape)} axes"
        return ArrayTensor(shape_only, name=name, dtype=stored.name, unreadable=kind)
    rows = entry.shape[-2]
    blocks = file.view(entry.offset, entry.nbytes, np.dtype(np.uint8), (math.prod(entry.shape[:-1]), -1))
    whole = (Mxfp4Rows if stored.name == "MXFP4" else QuantizedTensor)(blocks, name=name, format=stored, file=file)
    if len(entry.shape) == 2:
        return whole
    return Stacked.of([whole.take(at, at + rows) for at in range(0, whole.shape[0], rows)])
