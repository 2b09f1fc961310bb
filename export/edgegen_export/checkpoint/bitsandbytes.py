"""bitsandbytes checkpoints: 4-bit codes of a codebook (NF4, FP4) in blocks, and int8 matrices (LLM.int8).

The codes of a matrix lie one after the other, two in a byte, the first in its high bits; consecutive ones share a
largest magnitude, ``absmax``, which is quantized itself where quantization is nested (Dettmers et al.,
arXiv:2305.14314). An int8 weight is ``code · SCB / 127`` (arXiv:2208.07339).
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from edgegen_export.checkpoint.scaled_matrix import Multiplied, ScaledMatrix, ScaledParts
from edgegen_export.checkpoint.stored_rows import Floats, StoredRows
from edgegen_export.tensors.lazy import ArrayTensor, LazyTensor

_STATE = re.compile(r"(?P<weight>.+)\.quant_state\.bitsandbytes__(?P<kind>nf4|fp4)")
_PARTS = ("absmax", "quant_map", "nested_absmax", "nested_quant_map")
_CODES = 16


@dataclass(frozen=True, slots=True)
class BitsAndBytes:
    """A checkpoint that bitsandbytes quantized; what its matrices are is said beside each."""


def bitsandbytes_matrices(tensors: Mapping[str, LazyTensor]) -> tuple[dict[str, LazyTensor], list[str]]:
    """``tensors`` with a lazy weight in the place of the parts of each quantized one; and what is wrong with them."""
    result, problems = dict(tensors), list[str]()
    for name in tensors:
        if match := _STATE.fullmatch(name):
            weight = match["weight"]
            parts = {part: result.pop(f"{weight}.{part}") for part in _PARTS if f"{weight}.{part}" in result}
            made = _of_codebook(weight, tensors.get(weight), result.pop(name), parts)
        elif name.endswith(".SCB"):
            weight = f"{name.removesuffix('.SCB')}.weight"
            result.pop(f"{name.removesuffix('.SCB')}.weight_format", None)
            made = _of_int8(weight, tensors.get(weight), result.pop(name))
        else:
            continue
        if isinstance(made, str):
            problems.append(made)
        else:
            result[weight] = made
    problems += [
        f"{name}: stored as {tensor.dtype}, and has neither a quant_state nor an SCB"
        for name, tensor in result.items()
        if tensor.dtype in ("uint8", "int8") and name.endswith(".weight") and not isinstance(tensor, ScaledMatrix)
        if not any(problem.startswith(f"{name}:") for problem in problems)
    ]
    return result, problems


def _of_int8(name: str, codes: LazyTensor | None, scales: LazyTensor) -> ScaledMatrix | str:
    if not isinstance(codes, ArrayTensor) or codes.dtype != "int8" or len(codes.shape) != 2:
        return f"{name}: int8 of two axes expected beside SCB"
    rows, columns = codes.shape
    if not isinstance(scales, ArrayTensor) or scales.dtype != "float32" or scales.shape != (rows,):
        return f"{name}: SCB of shape {list(scales.shape)}, float32 of shape [{rows}] expected"
    if not np.isfinite(scales.stored).all():
        return f"{name}: its SCB has values that are NaN or infinite"
    parts = ScaledParts(
        StoredRows.numbers(codes),
        Multiplied(StoredRows.numbers(scales.seen_as((rows, 1))), np.float32(127), divided=True),
        block_rows=1,
        group_of=np.zeros(columns, np.intp),
        group_size=columns,
        bits=8,
        middle=128,
    )
    return ScaledMatrix(parts, name=name, dtype="int8")


def _of_codebook(
    name: str, codes: LazyTensor | None, state: LazyTensor, parts: Mapping[str, LazyTensor]
) -> ScaledMatrix | str:
    said = _state(state)
    if said is None:
        return f"{name}: its quant_state is no JSON object with a shape and a blocksize"
    rows, columns, size = said.rows, said.columns, said.block
    if not isinstance(codes, ArrayTensor) or codes.dtype != "uint8" or codes.shape != (rows * columns // 2, 1):
        return f"{name}: uint8 of shape [{rows * columns // 2}, 1] expected, for {rows} × {columns} codes"
    if columns % size:
        return f"{name}: rows of {columns} do not consist of blocks of {size}"
    nested = said.nested_block is not None
    count = rows * columns // size
    wanted = {"absmax": ("uint8" if nested else "float32", count), "quant_map": ("float32", _CODES)}
    if said.nested_block is not None:
        wanted |= {"nested_absmax": ("float32", -(-count // said.nested_block))}
        wanted |= {"nested_quant_map": ("float32", 256)}
    arrays = dict[str, ArrayTensor]()
    for part, (dtype, length) in wanted.items():
        found = parts.get(part)
        if not isinstance(found, ArrayTensor) or found.dtype != dtype or found.shape != (length,):
            return f"{name}.{part}: {dtype} of shape [{length}] expected"
        if dtype == "float32" and not np.isfinite(found.stored).all():
            return f"{name}.{part}: has values that are NaN or infinite"
        arrays[part] = found
    codebook: Floats = arrays["quant_map"].read()
    absmax = arrays["absmax"].seen_as((rows, columns // size))

    def values(array: NDArray[Any], start: int, stop: int) -> Floats:
        part: NDArray[np.uint8] = array[start:stop]
        return codebook[np.stack([part >> np.uint8(4), part & np.uint8(15)], axis=-1)].reshape(len(part), -1)

    scales = StoredRows.numbers(absmax)
    if (block := said.nested_block) is not None:
        offset = np.float32(said.nested_offset)
        levels, steps = arrays["nested_quant_map"].read(), arrays["nested_absmax"].read()
        groups = columns // size

        def of_nested(array: NDArray[Any], start: int, stop: int) -> Floats:
            step = steps[np.arange(start * groups, stop * groups) // block].reshape(-1, groups)
            return levels[array[start:stop]] * step + offset

        scales = StoredRows(absmax, (rows, groups), of_nested)
    return ScaledMatrix(
        ScaledParts(
            StoredRows(codes.seen_as((rows, columns // 2)), (rows, columns), values),
            scales,
            block_rows=1,
            group_of=np.arange(columns) // size,
            group_size=size,
        ),
        name=name,
        dtype="codes of a codebook",
    )


class _State(NamedTuple):
    """Layout that a matrix of codes states; scales share a scale of their own where they are nested."""

    rows: int
    columns: int
    block: int
    nested_block: int | None
    nested_offset: float


def _state(tensor: LazyTensor) -> _State | None:
    """None where it is not understood."""
    if not isinstance(tensor, ArrayTensor) or tensor.dtype != "uint8":
        return None
    try:
        said: object = json.loads(tensor.stored.tobytes())
    except ValueError:
        return None
    found = cast("dict[str, object]", said) if isinstance(said, dict) else {}
    shape, nested, offset = found.get("shape"), found.get("nested_blocksize"), found.get("nested_offset")
    sizes = [*(cast("list[object]", shape) if isinstance(shape, list) else []), found.get("blocksize")]
    whole = [size for size in (*sizes, *([] if nested is None else [nested])) if type(size) is int and size > 0]
    if len(sizes) != 3 or len(whole) != len(sizes) + (nested is not None):
        return None
    if nested is not None and not isinstance(offset, int | float):
        return None
    rows, columns, block = whole[:3]
    return _State(rows, columns, block, whole[3] if nested is not None else None, float(cast(float, offset or 0)))
