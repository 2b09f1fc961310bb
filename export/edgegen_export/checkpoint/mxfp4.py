"""MXFP4 matrices of experts: 4-bit floats in blocks of 32 that share a power of two, read and taken as 8-bit codes.

A value is ±0, 0.5, 1, 1.5, 2, 3, 4 or 6 times the block's scale (OCP Microscaling Formats 1.0, 2023). Twice such a
value is a whole number, so that 8-bit codes with half the scale say exactly the same.
"""

from collections.abc import Mapping

import ml_dtypes
import numpy as np

from edgegen_export.checkpoint.packing import MXFP4_BLOCK as BLOCK
from edgegen_export.checkpoint.scaled_matrix import Multiplied, ScaledMatrix, ScaledParts
from edgegen_export.checkpoint.stored_rows import StoredRows
from edgegen_export.tensors.lazy import ArrayTensor, LazyTensor
from edgegen_export.tensors.stacked import Stacked

PARTS = ("blocks", "scales")
"""The tensors ``name_blocks`` and ``name_scales`` stand in the place of ``name``."""

_BYTES = BLOCK // 2
"""Bytes of a block."""


def mxfp4_stacks(tensors: Mapping[str, LazyTensor]) -> tuple[dict[str, LazyTensor], list[str]]:
    """``tensors`` with one matrix in the place of each pair of blocks and scales; and what is wrong with such pairs."""
    result, problems = dict(tensors), list[str]()
    ends = tuple(f"_{part}" for part in PARTS)
    for name in sorted({name.removesuffix(end) for end in ends for name in tensors if name.endswith(end)}):
        blocks, scales = (result.pop(f"{name}_{part}", None) for part in PARTS)
        wrong = _misfits(name, blocks, scales)
        if name in tensors:
            wrong.append(f"{name}: stored twice, as floats and in MXFP4")
        problems += wrong
        if not wrong and isinstance(blocks, ArrayTensor) and isinstance(scales, ArrayTensor):
            result[name] = _stack(blocks, scales, f"{name}_blocks")
    return result, problems


def _stack(blocks: ArrayTensor, scales: ArrayTensor, name: str) -> Stacked:
    """The matrices of experts under the shape [experts, in, out] that they have as floats."""
    experts, rows, count = scales.shape

    def expert(number: int) -> LazyTensor:
        own, exponents = (part.take(number, number + 1) for part in (blocks, scales))
        return _matrix(own.seen_as((rows, count * _BYTES)), exponents.seen_as((rows, count)), name).transposed()

    return Stacked(tuple(expert(number) for number in range(experts)), (count * BLOCK, rows))


def _matrix(blocks: ArrayTensor, scales: ArrayTensor, name: str) -> ScaledMatrix:
    """``blocks`` uint8 [out, in / 2], the first value of a byte in its low bits; ``scales`` uint8 [out, in / 32]:
    exponents of two, plus 127."""
    columns = scales.shape[1] * BLOCK
    parts = ScaledParts(
        StoredRows.float4(blocks),
        Multiplied(StoredRows.exponents(scales), np.float32(0.5)),
        block_rows=1,
        group_of=np.arange(columns) // BLOCK,
        group_size=BLOCK,
        bits=8,
        middle=128,
        scale_dtype=np.dtype(ml_dtypes.bfloat16),
    )
    return ScaledMatrix(parts, name=name, dtype="mxfp4")


def _misfits(name: str, blocks: LazyTensor | None, scales: LazyTensor | None) -> list[str]:
    if blocks is None or scales is None:
        return [f"{name}: has no {name.rpartition('.')[2]}_{'blocks' if blocks is None else 'scales'}"]
    problems = [
        f"{name}_{part}: stored as {tensor.dtype}, uint8 expected"
        for part, tensor in zip(PARTS, (blocks, scales), strict=True)
        if tensor.dtype != "uint8"
    ]
    if len(scales.shape) != 3 or blocks.shape != (*scales.shape, _BYTES):
        problems.append(
            f"{name}: blocks of shape {list(blocks.shape)} and scales of shape {list(scales.shape)} do not fit: "
            "[experts, rows, blocks, 16] and [experts, rows, blocks] expected"
        )
    return problems
