"""hold(): better formats for those matrices that keep an 8-bit model too far from the unquantized one, by measurement.

All of them are quantized together first. Only where that misses the goal is each one judged alone, in every format it
may have, and those that gain most for their size get better ones. Floats are the last, and for small matrices only, as
they take four times the bytes; their products do not depend on the rows beside either.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from edgegen.board import trim_memory
from edgegen.manifest import MatrixFormat, Quantization
from edgegen_export.checkpoint import LazyTensor
from edgegen_export.parameters import fused_weight
from edgegen_export.quantize.allocation import Rung, climbed
from edgegen_export.quantize.blockwise import Blocks, block_size_for, round_rows, stored_bits
from edgegen_export.quantize.recipe import FLOATS
from edgegen_export.reference import LayerwiseReference
from edgegen_export.sensitivity import Change, Sensitivity

GOAL = 3e-4
"""Mean KL in nats that 8 bits may cost. Small trained models then agree with themselves in 98.5% of first choices."""

SMALL = 1 << 18
"""Weights of a matrix that may become floats: a megabyte of them is read in the time that the call itself takes."""

_SMALLER = (32, 16)
_SLAB = 1 << 20
"""Bytes of a matrix that are rounded at a time."""

Ids = NDArray[np.int64]
LayerMatrices = Sequence[Mapping[str, tuple[str, ...]]]
"""Of each layer, the modules of each matrix by fused name."""


@dataclass(frozen=True, slots=True)
class Held:
    """``divergence`` of the model as it was to be stored, and as ``formats`` leave it, as far as matrices add up."""

    divergence: float
    left: float
    formats: dict[str, MatrixFormat] = field(default_factory=dict[str, MatrixFormat])


def hold(
    tensors: Mapping[str, LazyTensor],
    reference: LayerwiseReference,
    matrices: LayerMatrices,
    ids: Ids,
    recipe: Quantization,
    *,
    tied_head: bool,
) -> Held:
    """The formats, by (fused) module, in which matrices of the model that ``reference`` makes of ``tensors`` have to
    be stored instead of those of ``recipe``, judged on ids [b, t]."""
    divergence = _together(tensors, reference, matrices, ids, recipe, tied_head=tied_head)
    if divergence <= GOAL:
        return Held(divergence, divergence)
    alone = _alone(tensors, reference, matrices, ids, recipe, tied_head=tied_head)
    modules = {name: parts for layer in matrices for name, parts in layer.items()}
    forms, ladders = dict[str, list[MatrixFormat]](), dict[str, list[Rung]]()
    for (name, form), cost in alone.items():
        shape = fused_weight(tensors, modules.get(name, (name,))).shape
        forms.setdefault(name, []).append(form)
        ladders.setdefault(name, []).append(Rung(cost, stored_bits(shape, form)))
    for name, ladder in ladders.items():
        shape = fused_weight(tensors, modules.get(name, (name,))).shape
        if math.prod(shape) <= SMALL:
            forms[name].append(FLOATS)
            ladder.append(Rung(0.0, stored_bits(shape, FLOATS)))
    # Errors of many matrices add up to somewhat more or less than their sum.
    expected = divergence / sum(rungs[0].divergence for rungs in ladders.values())
    reached = climbed(ladders, GOAL / expected)
    left = expected * sum(rungs[reached.get(name, 0)].divergence for name, rungs in ladders.items())
    return Held(divergence, left, {name: forms[name][k] for name, k in reached.items()})


def _together(
    tensors: Mapping[str, LazyTensor],
    reference: LayerwiseReference,
    matrices: LayerMatrices,
    ids: Ids,
    recipe: Quantization,
    *,
    tied_head: bool,
) -> float:
    """The divergence of the model with all matrices quantized."""
    trim_memory()
    probe, everything = Sensitivity(reference, ids), ("", recipe.linear)
    probe.branch_embedding(everything, recipe.format_of("embed"))
    for layer, of_layer in enumerate(matrices):
        with reference.layer(layer, ids.shape[1]) as run:
            probe.advance_exact(run)
        del run  # and its weights, before there are others
        trim_memory()
        forms = {name: recipe.format_of(name) for name in of_layer}
        blocks = {
            name: _blocks(fused_weight(tensors, of_layer[name]), form) for name, form in forms.items() if form != FLOATS
        }
        with reference.layer(layer, ids.shape[1], blocks=blocks) as run:
            probe.advance_changed(run)
        del run, blocks
        trim_memory()
    probe.branch_head(everything, recipe.format_of("embed" if tied_head else "head"))
    return probe.divergences()[everything]


def _alone(
    tensors: Mapping[str, LazyTensor],
    reference: LayerwiseReference,
    matrices: LayerMatrices,
    ids: Ids,
    recipe: Quantization,
    *,
    tied_head: bool,
) -> dict[Change, float]:
    """The divergence for each matrix in each of the formats it may have, the recipe's first."""
    probe = Sensitivity(reference, ids)
    for form in _ladder(tensors["embed.weight"], recipe.format_of("embed")):
        probe.branch_embedding(("embed", form), form)
    for layer, of_layer in enumerate(matrices):
        with reference.layer(layer, ids.shape[1]) as run:
            probe.advance(run)
        for name, modules in of_layer.items():
            weight = fused_weight(tensors, modules)
            for form in _ladder(weight, recipe.format_of(name)):
                with reference.layer(layer, ids.shape[1], blocks={name: _blocks(weight, form)}) as run:
                    probe.branch((name, form), run)
        trim_memory()
    head = "embed" if tied_head else "head"
    for form in _ladder(tensors[f"{head}.weight"], recipe.format_of(head)):
        probe.branch_head((head, form), form)
    return probe.divergences()


def _ladder(weight: LazyTensor, form: MatrixFormat) -> list[MatrixFormat]:
    """``form`` and the smaller blocks there are; nothing where it is floats."""
    if form == FLOATS:
        return []
    block_size = block_size_for(weight.shape[1], form.block_size)
    return [form, *(replace(form, block_size=size) for size in _SMALLER if size < block_size)]


def _blocks(weight: LazyTensor, form: MatrixFormat) -> Blocks:
    block_size = block_size_for(weight.shape[1], form.block_size)
    parts = [round_rows(slab, form.bits, block_size) for _, _, slab in weight.slabs(_SLAB)]
    return Blocks(
        codes=np.concatenate([part.codes for part in parts]),
        scales=np.concatenate([part.scales for part in parts]),
        zeros=None,
        bits=form.bits,
        columns=weight.shape[1],
    )
