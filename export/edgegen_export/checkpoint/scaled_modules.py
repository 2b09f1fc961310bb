"""dequantized(): the matrices of a checkpoint that stores small numbers with scales, under their own names."""

import re
from collections.abc import Callable, Mapping
from math import prod
from typing import NamedTuple

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

from edgegen_export.checkpoint.base_names import BaseNames
from edgegen_export.checkpoint.scaled_matrix import Multiplied, ScaledMatrix, ScaledParts, Scales
from edgegen_export.checkpoint.stored_format import Block, Formats, StoredFormat
from edgegen_export.checkpoint.stored_rows import StoredRows
from edgegen_export.tensors.lazy import ArrayTensor, LazyTensor
from edgegen_export.tensors.stacked import Stacked

_PART = re.compile(
    r"(?P<weight>.+?)_(?P<part>packed|scale|scale_inv|scale_2|global_scale|zero_point|shape|g_idx|offset)"
)
"""A weight has its name alone, or what is quantized of it; the other parts have these endings."""

_UNUSED = re.compile(
    r".+\.(input_scale|input_zero_point|input_global_scale|input_scale_ub|activation_scale|output_scale"
    r"|output_zero_point|[qkv]_scale|[qkv]_zero_point|kv_scale|prob_scale)"
)
"""Scales of activations and of the KV cache, which get their own."""

_FLOATS: Mapping[str, np.dtype[np.generic]] = {
    "float16": np.dtype(np.float16),
    "bfloat16": np.dtype(ml_dtypes.bfloat16),
    "float32": np.dtype(np.float32),
}
FLOAT8 = ("float8_e4m3fn", "float8_e5m2")
_EXPONENTS = "float8_e8m0fnu"
_STORED_AS = {"float8": FLOAT8, "float4": ("uint8",), "int8": ("int8",), "words": ("int32", "uint32")}
_INTEGERS = ("int8", "uint8", "int32", "uint32")
_FLOAT4_BITS, _FLOAT4_MIDDLE = 8, 128
_WORD = 32
_STEP = 1 << 20
"""Scales that are looked at at a time."""

_SWITCH = re.compile(r"(?P<before>.*?)(?P<block>[^.]+)\.switch_mlp\.(?P<matrix>[^.]+)")
_NUMBERED = {"gate_proj": "w1", "up_proj": "w3", "down_proj": "w2"}
_EXPERT_MATRICES = {"block_sparse_moe": _NUMBERED, "feed_forward": _NUMBERED}
"""Names of experts' matrices in Mixtral and LFM2, by their names in a ``switch_mlp``."""


def dequantized(
    tensors: Mapping[str, LazyTensor], formats: Formats, names: BaseNames, warn: Callable[[str], None]
) -> tuple[dict[str, LazyTensor], list[str]]:
    """``tensors`` with a lazy weight in the place of the parts of each quantized one; and what is wrong with them.

    ``warn`` is told what is not used.
    """
    if formats.mlx:
        tensors = _named_as_others(tensors)
    rest, parts, unused = dict[str, LazyTensor](), dict[str, dict[str, LazyTensor]](), list[str]()
    for name, tensor in tensors.items():
        match = _PART.fullmatch(name)
        if _UNUSED.fullmatch(name):
            unused.append(name)
        elif match and (match["weight"].endswith("weight") or match["weight"] in tensors):
            parts.setdefault(match["weight"], {})[match["part"]] = tensor
        else:
            rest[name] = tensor
            if tensor.dtype in FLOAT8 or (tensor.dtype in _INTEGERS and name.endswith(".weight")):  # lacks a scale
                parts.setdefault(name, {})
    problems = list[str]()
    for weight, found in parts.items():
        module = weight.removesuffix(".weight")
        if (plain := rest.pop(weight, None)) is not None:
            found["codes"] = plain
        form = formats.of(module, names)
        made = f"{module}: {form}" if isinstance(form, str) else _weight(weight, found, form)
        if isinstance(made, str | list):
            problems += [made] if isinstance(made, str) else made
            continue
        rest[weight] = made.transposed() if names.is_inputs_first(module) else made
    if (unused or formats.unused) and not problems:
        warn(_not_used(unused, formats))
    return rest, problems


def _not_used(names: list[str], formats: Formats) -> str:
    counts: dict[str, int] = {}
    for name in names:
        counts[name.rpartition(".")[2]] = counts.get(name.rpartition(".")[2], 0) + 1
    tensors = [f"{count} {kind}" for kind, count in sorted(counts.items())]
    said = ", ".join([*formats.unused, *([f"its tensors ({', '.join(tensors)})"] if tensors else [])])
    return (
        f"not used of the checkpoint's quantization: {said}; activations and the KV cache get scales of their own here"
    )


def _weight(name: str, parts: Mapping[str, LazyTensor], form: StoredFormat) -> LazyTensor | list[str]:
    """The matrix ``name`` of its parts, or a stack of matrices; else what is wrong with them."""
    arrays = {part: tensor for part, tensor in parts.items() if isinstance(tensor, ArrayTensor)}
    if "codes" in arrays and "packed" in arrays:
        return [f"{name}: stored twice, as it is and as {name}_packed"]
    codes = arrays.get("codes") or arrays.get("packed")
    if codes is None:
        return [f"{name}: missing, and it has {', '.join(f'{name}_{part}' for part in arrays)}"]
    if len(codes.shape) != 3:
        return _matrix(name, arrays, form)
    count = codes.shape[0]
    if wrong := [part for part, array in arrays.items() if not array.shape or array.shape[0] != count]:
        return [f"{name}_{part}: shape {list(arrays[part].shape)}, but there are {count} matrices" for part in wrong]
    made = list[LazyTensor]()
    for number in range(count):
        own = {part: array.take(number, number + 1).seen_as(array.shape[1:]) for part, array in arrays.items()}
        matrix = _matrix(name, own, form)
        if isinstance(matrix, list):
            return matrix
        made.append(matrix)
    return Stacked.of(made)


class _Grid(NamedTuple):
    """Values for each block of a matrix."""

    scales: Scales
    dtype: np.dtype[np.generic]


def _matrix(name: str, arrays: Mapping[str, ArrayTensor], form: StoredFormat) -> ScaledMatrix | list[str]:
    codes = arrays.get("codes") or arrays["packed"]
    if form.in_words and codes.dtype == "uint32" and codes.shape:
        codes = codes.as_bytes("uint8" if form.numbers == "float4" else FLOAT8[0])
    if codes.dtype not in _STORED_AS[form.numbers]:
        return [f"{name}: stored as {codes.dtype}, and the config says {_described(form)}"]
    if len(codes.shape) != 2:
        return [f"{name}: shape {list(codes.shape)}, with 2 axes expected"]
    values = _values(name, codes, arrays.get("shape"), form)
    if isinstance(values, str):
        return [values]
    rows, columns = values.shape
    scale = arrays.get("scale_inv") or arrays.get("scale")
    if scale is None:
        return [f"{name}: has no {name.rpartition('.')[2]}_scale, and is stored as {codes.dtype}"]
    fitting = [block for block in form.blocks if _fits(scale.shape, _grid_shape(block, rows, columns))]
    if not fitting:
        wanted = " or ".join(str(list(_grid_shape(block, rows, columns))) for block in form.blocks)
        return [f"{scale.names[0]}: shape {list(scale.shape)}, but a matrix of {rows} × {columns} takes {wanted}"]
    (block_rows, size), shape = fitting[0], _grid_shape(fitting[0], rows, columns)
    grid = _grid(scale, shape, form)
    if isinstance(grid, str):
        return [grid]
    problems = _of_form(name, arrays, form)
    factor = _second_scale(name, arrays, form)
    order = _order(name, arrays.get("g_idx"), columns, shape[1], size)
    zeros, offsets = _zeros(name, arrays.get("zero_point"), shape, form), None
    if form.offsets and (offset := arrays.get("offset")) is not None:
        offsets = _grid(offset, shape, form) if _fits(offset.shape, shape) else _misfit(offset, shape)
    if isinstance(factor, str) or isinstance(order, str) or isinstance(zeros, str) or isinstance(offsets, str):
        return problems + [found for found in (factor, order, zeros, offsets) if isinstance(found, str)]
    if problems:
        return problems
    scales = grid.scales if factor is None else Multiplied(grid.scales, factor, form.second_scale == "divisor")
    dtype = grid.dtype if factor is None else np.dtype(np.float32)
    if form.numbers == "float4":  # values are twice what they stand for
        scales = Multiplied(scales, np.float32(0.5))
    of_blocks = [scales, *([offsets.scales] if offsets else [])]
    if not all(map(_finite, of_blocks)):
        return [f"{scale.names[0]}: has values that are NaN or infinite"]
    bits, middle = _codes_of(form)
    parts = ScaledParts(
        values,
        scales,
        block_rows=block_rows or max(1, rows),
        group_of=order if order is not None else np.arange(columns) // (size or max(1, columns)),
        group_size=None if order is not None else size or columns,
        zeros=zeros.stored,
        zero=zeros.constant,
        offsets=offsets.scales if offsets else None,
        bits=bits,
        middle=middle,
        scale_dtype=dtype,
    )
    return ScaledMatrix(parts, name=name, dtype=_described(form))


def _described(form: StoredFormat) -> str:
    return {"float8": "8-bit floats", "float4": "4-bit floats", "int8": "int8"}.get(
        form.numbers, f"{form.bits}-bit integers"
    )


def _codes_of(form: StoredFormat) -> tuple[int | None, int]:
    """Bits and middle of the codes that hold the values exactly; no bits where none do."""
    match form.numbers:
        case "float8":
            return None, 0
        case "float4":
            return _FLOAT4_BITS, _FLOAT4_MIDDLE
        case "int8":
            return 8, 128
        case "words":
            return form.bits, 0  # as they are stored


def _values(name: str, codes: ArrayTensor, shape: ArrayTensor | None, form: StoredFormat) -> StoredRows | str:
    """The numbers of a matrix."""
    match form.numbers:
        case "float8":
            return StoredRows.float8(codes, codes.dtype)
        case "float4":
            return StoredRows.float4(codes)
        case "int8":
            return StoredRows.numbers(codes)
        case "words":
            rows, width = codes.shape
            columns = width * _WORD // form.bits
            if form.shaped:
                if shape is None or shape.dtype not in ("int64", "int32") or shape.shape != (2,):
                    return f"{name}: has no {name.rpartition('.')[2]}_shape, which says rows and columns"
                stated: NDArray[np.int64] = shape.stored
                if int(stated[0]) != rows or -(-int(stated[1]) * form.bits // _WORD) != width:
                    asked = f"{int(stated[0])} × {int(stated[1])} codes of {form.bits} bits"
                    return f"{codes.names[0]}: shape {list(codes.shape)} does not hold the {asked} of {name}_shape"
                columns = int(stated[1])
            return StoredRows.words(codes, form.bits, columns)


def _grid_shape(block: Block, rows: int, columns: int) -> tuple[int, int]:
    high, wide = block
    return -(-rows // (high or max(1, rows))), -(-columns // (wide or max(1, columns)))


def _fits(shape: tuple[int, ...], grid: tuple[int, int]) -> bool:
    """Whether a tensor of ``shape`` is ``grid``, but for axes of one."""
    return [size for size in shape if size != 1] == [size for size in grid if size != 1]


def _misfit(array: ArrayTensor, shape: tuple[int, int]) -> str:
    return f"{array.names[0]}: shape {list(array.shape)}, {list(shape)} expected"


def _grid(array: ArrayTensor, shape: tuple[int, int], form: StoredFormat) -> _Grid | str:
    """Scales (or offsets) of ``shape``."""
    stored = array.seen_as(shape)
    if array.dtype in _FLOATS:
        return _Grid(StoredRows.numbers(stored), _FLOATS[array.dtype])
    if array.dtype == _EXPONENTS or (array.dtype == "uint8" and form.byte_scales == "exponents"):
        return _Grid(StoredRows.exponents(stored), _FLOATS["bfloat16"])
    if array.dtype in FLOAT8:
        return _Grid(StoredRows.float8(stored, array.dtype), _FLOATS["float32"])
    if array.dtype == "uint8" and form.byte_scales == "float8":
        return _Grid(StoredRows.float8(stored, FLOAT8[0]), _FLOATS["float32"])
    return f"{array.names[0]}: stored as {array.dtype}, {', '.join(_FLOATS)} or 8-bit floats expected"


def _of_form(name: str, arrays: Mapping[str, ArrayTensor], form: StoredFormat) -> list[str]:
    """Parts that the format needs and the weight has not, and parts that the format does not have."""
    last = name.rpartition(".")[2]
    needed = {"zero_point": form.zeros, "offset": form.offsets, "global_scale": form.second_scale == "divisor"}
    needed |= {"scale_2": form.second_scale == "factor"}
    # A zero point may stand beside symmetric integers, and is read.
    allowed = {part for part, is_needed in needed.items() if is_needed} | {"zero_point"}
    missing = [part for part, is_needed in needed.items() if is_needed and part not in arrays]
    spare = [part for part in needed if part in arrays and part not in allowed]
    return [
        *(f"{name}: has no {last}_{part}" for part in missing),
        *(f"{name}_{part}: not a part of {_described(form)} as the config describes them" for part in spare),
    ]


def _second_scale(name: str, arrays: Mapping[str, ArrayTensor], form: StoredFormat) -> np.float32 | str | None:
    """The scale of the whole matrix."""
    part = {"divisor": "global_scale", "factor": "scale_2", "none": ""}[form.second_scale]
    if not part or part not in arrays:
        return None
    array = arrays[part]
    if array.dtype not in _FLOATS or prod(array.shape) != 1:
        return f"{name}_{part}: {array.dtype} of shape {list(array.shape)}, one float expected"
    return np.float32(array.read().reshape(()))


def _order(
    name: str, array: ArrayTensor | None, columns: int, groups: int, size: int | None
) -> NDArray[np.intp] | str | None:
    """The group of each column, where groups are not consecutive columns."""
    if array is None:
        return None
    if array.dtype not in ("int32", "int64") or array.shape != (columns,):
        return f"{name}_g_idx: {array.dtype} of shape {list(array.shape)}, whole numbers of shape [{columns}] expected"
    stored: NDArray[np.int64] = array.stored
    if (stored == -1).all():  # so it is while it was not set
        return None
    if columns and not 0 <= stored.min() <= stored.max() < groups:
        return f"{name}_g_idx: names groups {stored.min()} to {stored.max()}, and there are {groups}"
    in_order = np.arange(columns) // (size or max(1, columns))
    return None if (stored == in_order).all() else stored.astype(np.intp)


class _Zeros(NamedTuple):
    """Zero points in the numbers of the values: ``constant``, and what is stored for each block on top."""

    stored: StoredRows | None
    constant: int


def _zeros(name: str, array: ArrayTensor | None, shape: tuple[int, int], form: StoredFormat) -> _Zeros | str:
    # Packed integers are stored plus the middle of their codes, and so are packed zero points.
    middle = 1 << (form.bits - 1) if form.numbers == "words" and not form.offsets else 0
    if array is None:
        return _Zeros(None, middle)
    if form.numbers in ("float8", "float4"):
        is_zero = not array.stored.any()
        return (
            _Zeros(None, 0) if is_zero else f"{name}_zero_point: zero points of floats are not read, unless all are 0"
        )
    rows, groups = shape
    if array.dtype == "int32" and form.numbers == "words":
        packed = (-(-rows * form.bits // _WORD), groups)
        if array.shape != packed:
            return _misfit(array, packed)
        return _Zeros(StoredRows.words_of_columns(array, form.bits, rows), 0)
    if array.dtype != "int8" or not _fits(array.shape, shape):
        return f"{name}_zero_point: {array.dtype} of shape {list(array.shape)}, int8 of shape {list(shape)} expected"
    return _Zeros(StoredRows.numbers(array.seen_as(shape)), middle)


def _finite(grid: Scales) -> bool:
    count, width = grid.shape
    step = max(1, _STEP // max(1, width))
    for start in range(0, count, step):
        stop = min(start + step, count)
        if not np.isfinite(grid.rows(start, stop)).all():
            return False
        grid.release(start, stop)
    return True


def _named_as_others(tensors: Mapping[str, LazyTensor]) -> dict[str, LazyTensor]:
    """The tensors of an MLX checkpoint as other tools call and store them.

    Matrices of experts lie one after the other there, and kernels of convolutions have their channels last.
    """
    result = dict[str, LazyTensor]()
    for full_name, tensor in tensors.items():
        module, _, part = full_name.rpartition(".")
        ending = {"scales": "weight_scale", "biases": "weight_offset"}.get(part, part)
        switch = _SWITCH.fullmatch(module)
        if switch and tensor.shape:
            matrix = _EXPERT_MATRICES.get(switch["block"], {}).get(switch["matrix"], switch["matrix"])
            for number in range(tensor.shape[0]):
                name = f"{switch['before']}{switch['block']}.experts.{number}.{matrix}.{ending}"
                result[name] = tensor.take(number, number + 1).reshaped(tensor.shape[1:])
            continue
        if module.endswith(("conv", "conv1d")) and part == "weight" and len(tensor.shape) == 3 and tensor.shape[2] == 1:
            tensor = tensor.reshaped((tensor.shape[0], 1, tensor.shape[1]))
        result[f"{module}.{ending}" if module else ending] = tensor
    return result
