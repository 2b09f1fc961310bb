"""BitBudget: the bits that all matrices of an int4 bundle may take together, and the format that each one gets.

Every matrix has a ladder of formats: 4 bits, 4 bits with zero points, 8 bits. Spare bits buy higher rungs. A budget
that is less than all matrices take in 4 bits puts 2 and 3 bits below these, without and with zero points.
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
from edgegen_export.quantize.recipe import FOUR_BITS, NARROW
from edgegen_export.tensors.lazy import LazyTensor

LAYER_BITS, EMBEDDING_BITS = 4.7, 7.25
"""Default bits per weight of the layers' matrices, and of embedding and head, shared by all of them: no more than
llama.cpp's Q4_K_M takes."""

Ladder = tuple[MatrixFormat, ...]


def ladder(eight_bits: MatrixFormat, columns: int = 0) -> Ladder:
    """The formats of a matrix, smallest first, up to ``eight_bits``: none has larger blocks. With ``columns``, those of
    2 and 3 bits are below, where their blocks divide so many."""
    if columns and all(columns % form.block_size == 0 and form.block_size <= eight_bits.block_size for form in NARROW):
        return *NARROW, *ladder(eight_bits)
    zeros = replace(FOUR_BITS, block_size=min(FOUR_BITS.block_size, eight_bits.block_size))
    return replace(zeros, symmetric=True), zeros, eight_bits


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
        self._narrow = False
        fixed = self._bits({name: recipe.format_of(name) for name in others})
        weights, used = self._weights(self._shapes), fixed + self._least(allocated, recipe)
        embeddings = self._weights(name for name in allocated if name in EMBEDDINGS)
        default = fixed + LAYER_BITS * (self._weights(allocated) - embeddings) + EMBEDDING_BITS * embeddings
        self._total = round(default if per_weight is None else per_weight * weights)
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
        return ladder(eight_bits, self._shapes[name][1] if self._narrow else 0)

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

    def _bits(self, formats: Mapping[str, MatrixFormat]) -> int:
        return sum(stored_bits(self._shapes[name], form) for name, form in formats.items())

    def _weights(self, names: Iterable[str]) -> int:
        return sum(math.prod(self._shapes[name]) for name in names)
