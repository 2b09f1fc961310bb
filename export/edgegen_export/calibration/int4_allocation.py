"""Climb: the matrices of an int4 bundle, each rounded by GPTQ to the 4-bit formats of its ladder, and judged.

What a matrix costs the model is measured with zeros. Without, it costs as much more as what it makes of its inputs is
farther off: that ratio is steadier than a second measurement, and every one goes through all layers that follow.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.manifest import MatrixFormat, Quantization
from edgegen_export.calibration.bit_budget import BitBudget, Ladder, ladder
from edgegen_export.calibration.sensitivity import Change, Sensitivity, embedding_costs
from edgegen_export.checkpoint import LazyTensor
from edgegen_export.graph.layerwise_reference import LayerRun, LayerwiseReference
from edgegen_export.quantize.block_store import BlockStore
from edgegen_export.quantize.blockwise import Blocks, Floats, block_size_for
from edgegen_export.quantize.gptq import gptq, inverse_factor
from edgegen_export.quantize.recipe import EIGHT_BITS, FOUR_BITS

LOOKED_UP = 0.3
"""Where one matrix is embedding and head: weight of its errors as they are, next to that of what they do to logits."""


class Climb:
    """The ladders so far. The layers are gone through in their order, then come the embedding and the head."""

    def __init__(
        self, reference: LayerwiseReference, ids: NDArray[np.int64], store: BlockStore, budget: BitBudget
    ) -> None:
        """``ids`` [b, t]: what the model is judged on; ``reference``: the model as it is."""
        self._reference = reference
        self._ids = ids
        self._store = store
        self._budget = budget
        self._probe = Sensitivity(reference, ids)
        self._ladders: dict[str, Ladder] = {}
        self._without_zeros: dict[str, float] = {}

    def advance(self, run: LayerRun) -> None:
        """A layer, unquantized, before its matrices."""
        self._probe.advance(run)

    def add(
        self,
        layer: int,
        name: str,
        weight: LazyTensor,
        form: MatrixFormat,
        hessian: Floats,
        changed: Mapping[str, LazyTensor],
    ) -> None:
        """A matrix of the layer, whose inputs bear the blocks of ``form``; ``changed``: tensors of the layer."""
        # Blocks that have to be smaller must be so with more bits too.
        smaller = form.block_size < FOUR_BITS.block_size
        forms = ladder(replace(EIGHT_BITS, block_size=form.block_size) if smaller else EIGHT_BITS)
        (_, plain), (measured, zeros) = self._quantized(name, weight, forms, hessian).items()
        self._without_zeros[name] = plain.lost / zeros.lost if zeros.lost else 1.0
        with self._reference.layer(layer, self._ids.shape[1], changed=changed, blocks={name: zeros}) as run:
            self._probe.branch(measured, run)

    def reached(
        self, tensors: Mapping[str, LazyTensor], head_inputs: Floats, recipe: Quantization, *, tied_head: bool
    ) -> dict[str, MatrixFormat]:
        """The formats that the budget allows, by (fused) module, of ``tensors`` as they are to be stored.

        ``head_inputs``: ``x.T @ x`` of what the head takes; ``recipe``: with the formats that inputs can bear.
        """
        hessians, blocks = {"head": head_inputs}, dict[Change, Blocks]()
        if tied_head:
            hessians = {"embed": head_inputs + _unit(len(head_inputs), LOOKED_UP * float(np.diag(head_inputs).mean()))}
        else:
            # Rows that are looked up are not multiplied: one of their errors is as bad as another.
            hessians["embed"] = _unit(tensors["embed.weight"].shape[1])
        for name, hessian in hessians.items():
            forms = ladder(recipe.format_of(name))
            blocks |= self._quantized(name, tensors[f"{name}.weight"], forms, hessian)
        costs = self._probe.divergences()
        for name, ratio in self._without_zeros.items():
            plain, zeros, _ = self._ladders[name]
            costs[name, plain] = ratio * costs[name, zeros]
        costs |= embedding_costs(self._reference.with_tensors(tensors), self._ids, blocks, tied_head=tied_head)
        return self._budget.spent(self._ladders, costs, recipe)

    def _quantized(self, name: str, weight: LazyTensor, forms: Ladder, hessian: Floats) -> dict[Change, Blocks]:
        """The matrix in each of the ladder's 4-bit formats, stored unless it was by an earlier try."""
        self._ladders[name] = forms
        found = {form: self._store.get(name, form) for form in forms[:-1]}
        block_size = block_size_for(weight.shape[1], forms[0].block_size)
        factor = inverse_factor(hessian, block_size) if None in found.values() else None
        blocks = dict[Change, Blocks]()
        for form, stored in found.items():
            if stored is None:
                assert factor is not None
                stored = gptq(weight, factor, form.bits, block_size, symmetric=form.symmetric)
                self._store.put(name, form, stored)
            blocks[name, form] = stored
        return blocks


def _unit(columns: int, value: float = 1.0) -> Floats:
    return np.float32(value) * np.eye(columns, dtype=np.float32)
