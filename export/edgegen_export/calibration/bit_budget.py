"""BitBudget: the bits that all matrices of an int4 bundle may take together, and the format that each one gets.

Every matrix has a ladder of two formats, 4 bits and 8 bits, and spare bits buy the higher one. The 4 bits are the same
for all: with zero points where the budget takes them beside embeddings in 8 bits, without them otherwise. To round each
matrix in both ways takes twice the time, and brought the divergence of small trained models down by 6% at most. A
budget that is less than all matrices take in 4 bits puts 2 and 3 bits below these, without and with zero points.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from edgegen.bundle.manifest import EMBEDDINGS, MatrixFormat, Quantization
from edgegen.errors import UsageError
from edgegen.model.kernels import describe_kernels, runs_kernels
from edgegen_export.calibration.sensitivity import Change
from edgegen_export.graph.fused import fused_weight, parts
from edgegen_export.quantize.allocation import Rung, upgraded_within
from edgegen_export.quantize.blockwise import stored_bits
from edgegen_export.quantize.recipe import EIGHT_BITS, FOUR_BITS, NARROW
from edgegen_export.tensors.lazy import LazyTensor

LAYER_BITS, EMBEDDING_BITS = 4.7, 7.25
"""Default bits per weight of the layers' matrices, and of embedding and head, shared by all of them: no more than
llama.cpp's Q4_K_M takes."""

Ladder = tuple[MatrixFormat, ...]


def ladder(eight_bits: MatrixFormat, *, zeros: bool) -> Ladder:
    """Formats of a matrix, smallest first: 4 bits, with zero points or without, and ``eight_bits``; no block is larger
    than its."""
    block_size = min(FOUR_BITS.block_size, eight_bits.block_size)
    return replace(FOUR_BITS, block_size=block_size, symmetric=not zeros), eight_bits


def narrow_ladder(eight_bits: MatrixFormat, columns: int) -> Ladder:
    """Formats of a matrix with that number of columns, smallest first: 2 and 3 bits too, where their blocks divide the
    columns, and 4 bits in both ways."""
    four_bits = [ladder(eight_bits, zeros=zeros)[0] for zeros in (False, True)]
    fits = all(columns % form.block_size == 0 and form.block_size <= eight_bits.block_size for form in NARROW)
    return *(NARROW if fits else ()), *four_bits, eight_bits


class BitBudget:
    """The matrices of layers, experts, embedding and head, and the bits they may take."""

    def __init__(
        self, tensors: Mapping[str, LazyTensor], allocated: list[str], recipe: Quantization, per_weight: float | None
    ) -> None:
        """``allocated``: matrices that have a ladder, by (fused) module; all other matrices are as in ``recipe``.
        ``per_weight``: average bits per weight.

        Raises:
            UsageError: the matrices take more bits at least.
        """
        others = [name for name in EMBEDDINGS if f"{name}.weight" in tensors and name not in allocated]
        others += recipe.exceptions
        self._shapes = {name: fused_weight(tensors, parts(name)).shape for name in (*allocated, *others)}
        self._narrow = self._zeros = False
        fixed = self._bits({name: recipe.format_of(name) for name in others})
        weights, used = self._weights(self._shapes), fixed + self._least(allocated, recipe)
        embeddings = self._weights(name for name in allocated if name in EMBEDDINGS)
        default = fixed + LAYER_BITS * (self._weights(allocated) - embeddings) + EMBEDDING_BITS * embeddings
        self._total = round(default if per_weight is None else per_weight * weights)
        self._zeros = fixed + self._with_zeros(allocated) <= self._total
        if per_weight is None or self._total >= used:
            return
        self._narrow = True
        if self._total < (least := fixed + self._least(allocated, recipe)):
            raise UsageError(
                f"a bits budget of {per_weight:g} cannot be kept: with every matrix in 2 bits that can be, this model "
                f"takes {math.ceil(100 * least / weights) / 100} per weight; give that or more"
            )
        if not runs_kernels("auto"):
            raise UsageError(
                f"a bits budget of {per_weight:g} takes matrices of 3 or 2 bits, which only edgegen's kernels read, "
                f"and what runs here is {describe_kernels()}: give {math.ceil(100 * used / weights) / 100} or more"
            )

    def ladder_of(self, name: str, eight_bits: MatrixFormat) -> Ladder:
        """The formats that a matrix may have, up to ``eight_bits``."""
        if self._narrow:
            return narrow_ladder(eight_bits, self._shapes[name][1])
        return ladder(eight_bits, zeros=self._zeros)

    def spent(
        self, ladders: Mapping[str, Ladder], costs: Mapping[Change, float], recipe: Quantization
    ) -> dict[str, MatrixFormat]:
        """The format of each matrix that has a ladder. ``costs``: the divergence of each rung, 0 where it is missing.
        Matrices without a ladder are as in ``recipe``."""
        rungs = {
            name: [Rung(costs.get((name, form), 0.0), stored_bits(self._shapes[name], form)) for form in forms]
            for name, forms in ladders.items()
        }
        lowest = {name: ladders[name][0] if name in ladders else recipe.format_of(name) for name in self._shapes}
        reached = upgraded_within(rungs, self._total - self._bits(lowest))
        return {name: forms[reached[name]] for name, forms in ladders.items()}

    def _least(self, allocated: Iterable[str], recipe: Quantization) -> int:
        return self._bits({name: self.ladder_of(name, recipe.embedding)[0] for name in allocated})

    def _with_zeros(self, allocated: Iterable[str]) -> int:
        """Bits of embeddings in 8 bits and all other matrices in 4 with zero points."""
        four_bits = ladder(EIGHT_BITS, zeros=True)[0]
        return self._bits({name: EIGHT_BITS if name in EMBEDDINGS else four_bits for name in allocated})

    def _bits(self, formats: Mapping[str, MatrixFormat]) -> int:
        return sum(stored_bits(self._shapes[name], form) for name, form in formats.items())

    def _weights(self, names: Iterable[str]) -> int:
        return sum(math.prod(self._shapes[name]) for name in names)
