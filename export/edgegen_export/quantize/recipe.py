"""Recipes: how the weights of a bundle are to be stored. What was done in the end is in the bundle's manifest."""

import math
from dataclasses import replace
from typing import Literal

from edgegen.bundle.manifest import MatrixFormat, Quantization
from edgegen_export.quantize.blockwise import block_size_for

_LEAST_BLOCK = 32
"""The smallest block that edgegen's kernels read."""

Scheme = Literal["int8", "int4", "fp16", "fp32"]

FLOATS = MatrixFormat(bits=32, block_size=0, symmetric=True, accuracy_level=0)
HALVES = MatrixFormat(bits=16, block_size=0, symmetric=True, accuracy_level=0)
"""For storage only: a session makes 32-bit floats of them when it opens."""
EIGHT_BITS = MatrixFormat(bits=8, block_size=64, symmetric=True, accuracy_level=4)
"""Blocks of 64 or less keep a row's result independent of the rows beside it, bit for bit; larger ones do not.
``accuracy_level`` 4 lets ``MatMulNBits`` quantize activations to int8 as well (its fast path)."""
FOUR_BITS = MatrixFormat(bits=4, block_size=32, symmetric=False, accuracy_level=4)
"""Here the largest such block is 32."""

NARROW: tuple[MatrixFormat, ...] = tuple(
    MatrixFormat(bits=bits, block_size=32, symmetric=symmetric, accuracy_level=4)
    for bits in (2, 3)
    for symmetric in (True, False)
)
"""2 and 3 bits, smallest first: edgegen's kernels alone read them."""

TERNARY = MatrixFormat(bits=2, block_size=0, symmetric=True, accuracy_level=0)
"""Codes of -1, 0 and 1, and a scale for each row."""

SMALL = 1 << 18
"""Weights of a matrix that may be floats instead: a megabyte of them is read in the time that the call itself takes."""

SMOOTHING = 0.5
"""How much of the outliers goes into the weights; searched per layer, it does no better."""

ROUNDED: dict[Scheme, Quantization] = {
    "int8": Quantization("int8", linear=EIGHT_BITS, embedding=EIGHT_BITS),
    "int4": Quantization("int4", linear=replace(FOUR_BITS, symmetric=True), embedding=EIGHT_BITS),
    "fp16": Quantization("fp16", linear=HALVES, embedding=HALVES),
    "fp32": Quantization("fp32", linear=FLOATS, embedding=FLOATS),
}
"""Plain rounding, nothing measured. Of all matrices the embedding, and the head with it, suffers most from 4 bits."""


def of_ternary(scheme: Scheme) -> Quantization:
    """The recipe of a ternary model: its layers are stored as they are, and ``scheme`` is for what is not ternary."""
    return replace(ROUNDED[scheme], linear=TERNARY)


def heads_format(recipe: Quantization, shape: tuple[int, ...]) -> MatrixFormat | None:
    """How a bundle of that recipe stores the matrices of all heads of a layer, [rows, columns] together; None: as
    floats. Nothing measures what each loses, so they have 8 bits where other matrices have fewer."""
    if recipe.linear.bits > EIGHT_BITS.bits or recipe.linear.is_ternary or math.prod(shape) <= SMALL:
        return None
    block_size = block_size_for(shape[-1], EIGHT_BITS.block_size)
    return replace(EIGHT_BITS, block_size=block_size) if shape[-1] % _LEAST_BLOCK == 0 else None


CALIBRATED: dict[Scheme, Quantization] = {
    "int8": Quantization("int8", linear=EIGHT_BITS, embedding=EIGHT_BITS, smoothing=SMOOTHING),
    "int4": Quantization("int4", linear=FOUR_BITS, embedding=EIGHT_BITS, smoothing=SMOOTHING, method="gptq"),
    "fp16": ROUNDED["fp16"],
    "fp32": ROUNDED["fp32"],
}
