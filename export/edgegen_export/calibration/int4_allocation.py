"""Int4Allocation: GPTQ rounds each matrix to its ladder's formats below 8 bits, and a bit budget chooses among them.

Where a ladder has a format both with zero points and without, what the matrix costs the model is measured with them.
Without them it costs more, by the ratio of the two rounding errors in the matrix's outputs: that ratio is steadier than
a second measurement, which would run all later layers. So it is with the table of tokens and the head: they cost what
they do rounded plainly, by the ratio of the errors in some of their rows. The whole matrix is quantized only where it
gets fewer bits than 8, for it is as large as several layers.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.manifest import MatrixFormat, Quantization
from edgegen.system import trim_memory
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.calibration.bit_budget import BitBudget, Ladder
from edgegen_export.calibration.layer_walk import LayerMatrix, layer_matrices
from edgegen_export.calibration.sensitivity import Change, Sensitivity
from edgegen_export.calibration.strategy import Decision
from edgegen_export.files.scratch import Scratch
from edgegen_export.files.threads import Follower
from edgegen_export.graph.layerwise_model import LayerRun, LayerwiseModel
from edgegen_export.quantize.block_store import BlockStore
from edgegen_export.quantize.blockwise import Blocks, block_size_for, round_rows
from edgegen_export.quantize.gptq import gptq
from edgegen_export.quantize.hessian import Hessian, factors_of, lost_by
from edgegen_export.quantize.recipe import EIGHT_BITS, FLOATS, FOUR_BITS, NARROW
from edgegen_export.tensors.lazy import LazyTensor

LOOKED_UP = 0.3
"""Where one matrix is embedding and head: weight of its errors as they are, next to that of what they do to logits."""

_JUDGED_ROWS = 4096
"""Rows of the table of tokens and of the head, spread evenly, in which GPTQ's errors are compared with plain ones."""

_NARROW_WARNING = (
    "some matrices have 3 or 2 bits, which only edgegen's kernels read: --kernels stock and GPUs cannot run the bundle"
)


class _Ratios(NamedTuple):
    """The error of GPTQ by that of plain rounding, squared: in a matrix's ``values``, and in its ``products``."""

    values: float
    products: float


class Int4Allocation:
    """The strategy of int4: a ladder of formats for each matrix of the layers, then for the embedding and the head."""

    hessians = True

    def __init__(
        self,
        reference: LayerwiseModel,
        config: DecoderConfig,
        ids: NDArray[np.int64],
        store: BlockStore,
        budget: BitBudget,
        embedding: MatrixFormat,
        scratch: Scratch,
    ) -> None:
        """``ids`` [b, t]: what the model is judged on; ``reference``: the unquantized model; ``embedding``: the best
        format of embedding and head; ``scratch``: where hidden states are kept."""
        self._reference = reference
        self._config = config
        self._ids = ids
        self._store = store
        self._budget = budget
        self._scratch = scratch
        self._in_order = len(config.passes) == config.num_layers
        self._probe = Sensitivity(reference, ids, scratch)
        self.beside = Follower()
        """Stores and measures a matrix while the next one is quantized."""
        self.enter = self._advance if self._in_order else None
        self._ladders: dict[str, Ladder] = {}
        self._without_zeros: dict[Change, tuple[Change, float]] = {}
        """A change without zeros: the same with them, and by how much it costs more."""
        self._tables = {form.bits: ("embed", form) for form in budget.ladder_of("embed", embedding)[:-1]}
        """The change of the token table that is measured, by bits."""
        for change in self._tables.values():
            self._probe.branch_tables(change, {"embed": change[1]})

    def add(self, matrix: LayerMatrix) -> None:
        """Quantize the matrix, and start to measure what that costs the model; one that stays in floats is left out."""
        if matrix.form == FLOATS:
            return
        assert matrix.hessian is not None
        name, block_size = matrix.name, matrix.form.block_size
        # Blocks that have to be smaller must be so with more bits too.
        smaller = block_size < FOUR_BITS.block_size
        eight_bits = replace(EIGHT_BITS, block_size=block_size) if smaller else EIGHT_BITS
        self._ladders[name] = self._budget.ladder_of(name, eight_bits)
        made = self._quantized(name, matrix.weight, self._ladders[name][:-1], matrix.hessian)

        def keep_and_measure() -> None:
            self._keep(made)
            self._measure_alone(matrix, made)

        self.beside.start(keep_and_measure)

    def _advance(self, run: LayerRun) -> None:
        """Take all models through a layer, when all matrices of the one before are measured."""
        self.beside.wait()
        self._probe.advance(run)

    def _keep(self, made: Mapping[Change, Blocks]) -> None:
        """Store what no earlier try has."""
        for (name, form), blocks in made.items():
            if not self._store.has(name, form):
                self._store.put(name, form, blocks)

    def _measure_alone(self, matrix: LayerMatrix, made: Mapping[Change, Blocks]) -> None:
        """Start to measure what each way in which the ``matrix`` is ``made`` costs the model."""
        name = matrix.name
        for change, plain in made.items():
            measured = name, replace(change[1], symmetric=False)
            if change[1].symmetric and measured in made:
                zeros = made[measured].lost
                self._without_zeros[change] = measured, plain.lost / zeros if zeros else 1.0
        if not self._in_order:
            return  # other passes, in layers before and after this one, use the matrix too
        for form in self._measured(name):
            tokens, blocks = self._ids.shape[1], {name: made[name, form]}
            changed = matrix.changed
            with self._reference.layer(matrix.layer, tokens, changed=changed, blocks=blocks, kernels=True) as run:
                self._probe.branch((name, form), run)

    def _measured(self, name: str) -> list[MatrixFormat]:
        """The formats whose cost is measured: the first goes on to the logits, of large models it alone."""
        forms = [form for form in self._ladders[name][:-1] if (name, form) not in self._without_zeros]
        return sorted(forms, key=lambda form: abs(form.bits - 3))

    def _measure(self, smoothed: LayerwiseModel) -> None:
        """Measure what quantized matrices cost in every pass that uses them."""
        tokens = self._ids.shape[1]
        for layer in range(self._config.num_layers):
            with smoothed.layer(layer, tokens) as run:
                self._probe.advance(run)
            for name in layer_matrices(self._config, layer):
                if name not in self._ladders:
                    continue
                for form in self._measured(name):
                    blocks = self._store.get(name, form)
                    assert blocks is not None
                    with smoothed.layer(layer, tokens, blocks={name: blocks}, kernels=True) as run:
                        self._probe.branch((name, form), run)

    def decide(self, tensors: Mapping[str, LazyTensor], recipe: Quantization, head_hessian: Hessian | None) -> Decision:
        """The formats that the budget allows."""
        assert head_hessian is not None
        smoothed, tied_head = self._reference.with_tensors(tensors), self._config.tied_head
        if not self._in_order:
            self._measure(smoothed)
        hessians = {"head": head_hessian}
        if tied_head:
            hessians = {"embed": head_hessian.added_to_diagonal(LOOKED_UP)}
        else:
            # Rows that are looked up are not multiplied: one of their errors is as bad as another.
            hessians["embed"] = Hessian.unit(tensors["embed.weight"].shape[1])
        ratios = dict[Change, _Ratios]()
        for name, hessian in hessians.items():
            self._ladders[name] = self._budget.ladder_of(name, recipe.format_of(name))
            ratios |= self._ratios(name, tensors[f"{name}.weight"], hessian)
        for name, form in ratios:
            if name == "head" or tied_head:
                self._probe.branch_head(("head", form), form)
        costs = self._probe.divergences(smoothed)
        for plain, (measured, ratio) in self._without_zeros.items():
            costs[plain] = ratio * costs[measured]
        for (name, form), (of_values, of_products) in ratios.items():
            looked_up = of_values * costs[self._tables[form.bits]] if name == "embed" else 0.0
            multiplied = of_products * costs["head", form] if name == "head" or tied_head else 0.0
            costs[name, form] = looked_up + multiplied
        chosen = self._budget.spent(self._ladders, costs, recipe)
        for name, hessian in hessians.items():
            if chosen[name] != self._ladders[name][-1]:
                self._keep(self._quantized(name, tensors[f"{name}.weight"], (chosen[name],), hessian))
        trim_memory()  # of the slabs that were rounded
        return Decision(chosen, (_NARROW_WARNING,) if set(NARROW).intersection(chosen.values()) else ())

    def _ratios(self, name: str, table: LazyTensor, hessian: Hessian) -> dict[Change, _Ratios]:
        """Return the ratios for each format but the last, of some of the table's rows."""
        spread = np.linspace(0, table.shape[0] - 1, min(_JUDGED_ROWS, table.shape[0])).astype(int)
        rows = np.concatenate([table.rows(i, i + 1) for i in spread.tolist()])
        table.release()  # each row mapped its neighbours too
        forms, result = self._ladders[name][:-1], dict[Change, _Ratios]()
        block_size = block_size_for(rows.shape[1], forms[0].block_size)
        factors = factors_of(hessian, block_size)
        for form in forms:
            made = gptq(LazyTensor.from_array(rows), factors, form.bits, block_size, symmetric=form.symmetric)
            errors, of_plain = (x.values() - rows for x in (made, round_rows(rows, form.bits, block_size)))
            products = _ratio(made.lost, lost_by(of_plain, factors))
            result[name, form] = _Ratios(_ratio(*(float(np.square(x).sum()) for x in (errors, of_plain))), products)
        return result

    def _quantized(self, name: str, weight: LazyTensor, forms: Ladder, hessian: Hessian) -> dict[Change, Blocks]:
        """The matrix in each of ``forms``, as an earlier try has stored it where one did."""
        found = {form: self._store.get(name, form) for form in forms}
        block_size = block_size_for(weight.shape[1], forms[0].block_size)
        factors = factors_of(hessian, block_size) if None in found.values() else None

        def quantized(form: MatrixFormat) -> Blocks:
            # In files, for codes of the embedding are as many as those of some layers together.
            if (stored := found[form]) is not None:
                return replace(stored, codes=self._scratch.kept(stored.codes))
            assert factors is not None
            return gptq(weight, factors, form.bits, block_size, symmetric=form.symmetric, scratch=self._scratch)

        return {(name, form): blocks for form, blocks in zip(found, map(quantized, found), strict=True)}


def _ratio(lost: float, of_plain: float) -> float:
    return lost / of_plain if of_plain else 1.0
