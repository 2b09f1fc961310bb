"""unpacked(): a quantized checkpoint under the tensor names and shapes that it had before it was quantized."""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from edgegen.errors import TensorError, UnsupportedModelError, one_or_list
from edgegen_export.checkpoint.base_names import BaseNames
from edgegen_export.checkpoint.bitsandbytes import BitsAndBytes, bitsandbytes_matrices
from edgegen_export.checkpoint.checkpoint import Checkpoint
from edgegen_export.checkpoint.mxfp4 import mxfp4_stacks
from edgegen_export.checkpoint.packing import SETTINGS, Packing
from edgegen_export.checkpoint.quantization_config import read_quantization
from edgegen_export.checkpoint.scaled_matrix import ScaledMatrix, ScaledParts
from edgegen_export.checkpoint.scaled_modules import FLOAT8, dequantized
from edgegen_export.checkpoint.stored_format import Formats
from edgegen_export.checkpoint.stored_rows import Floats, StoredRows
from edgegen_export.checkpoint.ternary import Ternary, ternary_matrices
from edgegen_export.tensors.lazy import ArrayTensor, LazyTensor

_MARKS = ("qweight", "qzeros", "g_idx")
"""Tensors that only a packed module has."""

_SCALES = ("float16", "bfloat16", "float32")

_LEFT_OUT = f"is quantized, and a rule of {SETTINGS}.dynamic leaves it out"
_SHOWN = 12
"""Problems that a message lists."""


def unpacked(checkpoint: Checkpoint, names: BaseNames, warn: Callable[[str], None] = lambda _: None) -> Checkpoint:
    """``checkpoint`` with one lazy ``weight`` in the place of the tensors of each packed module.

    ``warn`` is told which tensors and settings of the checkpoint's quantization are not used. A bias of zeros, which
    AutoGPTQ gives modules that had none, is left out where all layers have such a one.

    Raises:
        UnsupportedModelError: the config's ``quantization_config`` is not one that is read.
        TensorError: tensors of packed modules are missing or do not fit; all of them are listed.
    """
    packing, tensors = read_quantization(checkpoint.config), checkpoint.tensors
    if isinstance(packing, list):
        raise UnsupportedModelError(f"config.json asks for what edgegen cannot export: {one_or_list(packing)}")
    if isinstance(packing, Formats | BitsAndBytes | Ternary):
        if isinstance(packing, Formats):
            weights, problems = dequantized(tensors, packing, names, warn)
        elif isinstance(packing, Ternary):
            weights, problems = ternary_matrices(tensors, packing, names)
        else:
            weights, problems = bitsandbytes_matrices(tensors)
        _refuse(problems)
        return replace(checkpoint, tensors=MappingProxyType(weights))
    modules = sorted({name.rpartition(".")[0] for name in tensors if name.rpartition(".")[2] in _MARKS})
    if packing is None and modules:
        raise TensorError(f"{modules[0]} is quantized, and config.json has no {SETTINGS} that says how")
    if packing is None:
        if bare := next((name for name, tensor in tensors.items() if tensor.dtype in FLOAT8), None):
            raise TensorError(
                f"{bare} is stored as {tensors[bare].dtype}, and config.json has no {SETTINGS} that says how"
            )
        return checkpoint
    if packing.method == "mxfp4":
        stacks, problems = mxfp4_stacks(tensors)
        _refuse(problems)
        return replace(checkpoint, tensors=MappingProxyType(stacks))
    if not modules:
        raise TensorError(f"config.json has a {SETTINGS}, and the checkpoint no quantized matrix (no qweight)")
    problems, weights = list[str](), dict[str, LazyTensor]()
    for module in modules:
        if f"{module}.weight" in tensors:
            problems.append(f"{module}: has a weight beside its qweight")
        own = packing.of(module)
        parts = [f"{module}: {_LEFT_OUT}"] if own is None else _parts(tensors, module, own)
        if isinstance(parts, list):
            problems += parts
            continue
        matrix = ScaledMatrix(parts, name=f"{module}.qweight", dtype=f"{packing.method} {parts.bits}-bit")
        weights[f"{module}.weight"] = matrix.transposed() if names.is_inputs_first(module) else matrix
    _refuse(problems)
    consumed = {f"{module}.{part}" for module in modules for part in packing.parts} | _idle_biases(tensors, modules)
    rest = {name: tensor for name, tensor in tensors.items() if name not in consumed}
    return replace(checkpoint, tensors=MappingProxyType(rest | weights))


def _refuse(problems: list[str]) -> None:
    if problems:
        listed = problems[:_SHOWN] + [f"and {len(problems) - _SHOWN} more"] * (len(problems) > _SHOWN)
        raise TensorError(f"the checkpoint's quantized matrices do not fit its config.json: {one_or_list(listed)}")


def _parts(tensors: Mapping[str, LazyTensor], module: str, packing: Packing) -> ScaledParts | list[str]:
    """The tensors of a module, or what is wrong with them."""
    found = {part: tensors.get(f"{module}.{part}") for part in packing.parts}
    arrays = {part: tensor for part, tensor in found.items() if isinstance(tensor, ArrayTensor)}
    if missing := [part for part in packing.parts if part not in arrays]:
        return [f"{module}: has no {', '.join(missing)}"]
    problems = _misfits(module, arrays, packing)
    if problems:
        return problems
    columns = _columns(arrays, packing)
    groups, size = packing.groups(columns), packing.group_size or max(1, columns)
    group_of = np.arange(columns) // size
    if packing.method == "gptq":
        stored: NDArray[np.int32] = arrays["g_idx"].stored
        if stored.size and not 0 <= stored.min() <= stored.max() < groups:
            return [f"{module}.g_idx: names groups {stored.min()} to {stored.max()}, and there are {groups}"]
        if stored.any():  # nothing but zeros stands for "in order", too
            group_of = stored.astype(np.intp)
    return _scaled(arrays, packing, group_of)


def _scaled(arrays: Mapping[str, ArrayTensor], packing: Packing, group_of: NDArray[np.intp]) -> ScaledParts:
    """The matrix of sound ``arrays``; ``group_of`` [k]: the group of each column."""
    scales, columns = arrays["scales"], len(group_of)
    size, grid = packing.group_size or columns, (scales.shape[1], packing.groups(columns))

    def read_codes(words: NDArray[np.int32], start: int, stop: int) -> Floats:
        return packing.codes(words, start, stop)[:, :columns].astype(np.float32)

    def read_zeros(words: NDArray[np.int32], start: int, stop: int) -> Floats:
        return packing.zeros(words, start, stop).astype(np.float32)

    return ScaledParts(
        StoredRows(arrays["qweight"], (scales.shape[1], columns), read_codes, by_rows=False),
        StoredRows(scales, grid, lambda array, start, stop: array[:, start:stop].T.astype(np.float32), by_rows=False),
        block_rows=1,
        group_of=group_of,
        group_size=size if (group_of == np.arange(columns) // max(1, size)).all() else None,
        zeros=StoredRows(arrays["qzeros"], grid, read_zeros, by_rows=False),
        bits=packing.bits,
        scale_dtype=scales.stored.dtype,
    )


def _columns(arrays: Mapping[str, ArrayTensor], packing: Packing) -> int:
    return arrays["g_idx" if packing.method == "gptq" else "qweight"].shape[0]


def _misfits(module: str, arrays: Mapping[str, ArrayTensor], packing: Packing) -> list[str]:
    """Dtypes and shapes that are not those of one matrix."""
    problems: list[str] = []
    for part, array in arrays.items():
        axes, dtypes = (1 if part == "g_idx" else 2), (_SCALES if part == "scales" else ("int32",))
        if len(array.shape) != axes:
            problems.append(f"{module}.{part}: shape {list(array.shape)}, with {axes} axes expected")
        if array.dtype not in dtypes:
            problems.append(f"{module}.{part}: stored as {array.dtype}, {' or '.join(dtypes)} expected")
    if problems:
        return problems
    rows, columns = arrays["scales"].shape[1], _columns(arrays, packing)
    wanted = packing.shapes(rows, columns)
    asked = f"{rows} outputs and {columns} inputs of {packing.bits} bits in groups of {packing.group_size or columns}"
    return [
        f"{module}.{part}: shape {list(arrays[part].shape)}, but {asked} take {list(shape)}"
        for part, shape in wanted.items()
        if arrays[part].shape != shape
    ]


def _idle_biases(tensors: Mapping[str, LazyTensor], modules: Collection[str]) -> set[str]:
    """Biases of packed modules that are zero in every layer."""
    kinds: dict[str, list[str]] = {}
    for module in modules:
        if f"{module}.bias" in tensors:
            kinds.setdefault(re.sub(r"\d+", "{i}", module), []).append(f"{module}.bias")
    return {name for alike in kinds.values() if not any(tensors[name].read().any() for name in alike) for name in alike}
