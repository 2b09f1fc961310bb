"""Int8Refinement: better formats for the matrices whose 8 bits change the model's predictions most, by measurement.

First all matrices are quantized together. Where that misses the goal, all of them get the best format they may have,
together again: where even that misses it, there is nothing to choose. Otherwise each matrix is measured alone, in every
format it may have, and the matrices that gain most for their size get a better one. Floats come last, and for small
matrices only: they take four times the bytes. Their products are batch-invariant too.
"""

import math
from collections.abc import Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field, replace

from edgegen.bundle.manifest import MatrixFormat, Quantization
from edgegen.system import trim_memory
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.calibration.layer_walk import LayerMatrix, layer_matrices
from edgegen_export.calibration.sensitivity import Change, Sensitivity, probe_ids
from edgegen_export.calibration.strategy import Decision
from edgegen_export.calibration.trial import Ids, Trial
from edgegen_export.files.scratch import Scratch
from edgegen_export.graph.layerwise_model import LayerwiseModel
from edgegen_export.quantize.allocation import Rung, upgraded_until
from edgegen_export.quantize.blockwise import block_size_for, rounded_plainly, stored_bits
from edgegen_export.quantize.hessian import Hessian
from edgegen_export.quantize.recipe import FLOATS, SMALL
from edgegen_export.tensors.lazy import LazyTensor

GOAL = 3e-4
"""Mean KL in nats that 8 bits may cost. Small trained models then agree with themselves in 98.5% of first choices."""

_SMALLER, _SMALLEST = (32,), (32, 16)
"""Sizes of better blocks, of any matrix and of small ones: blocks of 16 run on ONNX Runtime's operator, which packs a
second copy of the matrix."""


@dataclass(frozen=True, slots=True)
class Refinement:
    """``divergence`` of the model in the recipe's formats; ``left``: with ``formats``, measured where all matrices have
    the best there is, and else as far as matrices add up."""

    divergence: float
    left: float
    formats: dict[str, MatrixFormat] = field(default_factory=dict[str, MatrixFormat])


class Int8Refinement:
    """The strategy of int8: nothing is decided before all layers are smoothed."""

    hessians = False
    beside = nullcontext()
    enter = None

    def __init__(self, reference: LayerwiseModel, config: DecoderConfig, ids: Ids, scratch: Scratch) -> None:
        """``ids`` [b, t]: what the model is judged on; ``reference``: the unquantized model; ``scratch``: where hidden
        states are kept."""
        self._scratch = scratch
        self._reference = reference
        self._config = config
        self._ids = ids

    def add(self, matrix: LayerMatrix) -> None: ...

    def decide(self, tensors: Mapping[str, LazyTensor], recipe: Quantization, head_hessian: Hessian | None) -> Decision:
        matrices = [layer_matrices(self._config, i) for i in range(self._config.num_layers)]
        smoothed = self._reference.with_tensors(tensors)
        found = refine(Trial(tensors, smoothed, matrices, self._ids, recipe, self._config.tied_head, self._scratch))
        trim_memory()
        return Decision(found.formats, (_not_enough(found),) if found.left > GOAL else ())


def _not_enough(found: Refinement) -> str:
    return (
        f"8 bits change this model's predictions by {found.divergence:.1e} nats per token, more than others'; better "
        f"formats for {len(found.formats)} matrices leave {found.left:.1e}: compare before you rely on it, or use "
        "--fp16"
    )


def refine(trial: Trial) -> Refinement:
    """The formats, by (fused) module, in which matrices have to be stored instead of those of the recipe."""
    plain = trial.forms
    divergence, exact = trial.divergence(plain)
    if divergence <= GOAL:
        return Refinement(divergence, divergence)
    best = {name: form[-1] for name in plain if len(form := _formats(trial, name)) > 1}
    left, _ = trial.divergence(plain | best, exact)
    if left > GOAL:
        return Refinement(divergence, left, best)
    forms, ladders = dict[str, list[MatrixFormat]](), dict[str, list[Rung]]()
    for (name, form), cost in _alone(trial).items():
        forms.setdefault(name, []).append(form)
        ladders.setdefault(name, []).append(Rung(cost, stored_bits(trial.weight(name).shape, form)))
    for name, ladder in ladders.items():
        if FLOATS in _formats(trial, name):
            forms[name].append(FLOATS)
            ladder.append(Rung(0.0, stored_bits(trial.weight(name).shape, FLOATS)))
    # Errors of many matrices add up to somewhat more or less than their sum.
    expected = divergence / sum(rungs[0].divergence for rungs in ladders.values())
    reached = upgraded_until(ladders, GOAL / expected)
    left = expected * sum(rungs[reached.get(name, 0)].divergence for name, rungs in ladders.items())
    return Refinement(divergence, left, {name: forms[name][k] for name, k in reached.items()})


def _alone(trial: Trial) -> dict[Change, float]:
    """The divergence for each matrix in each of the formats it may have, the recipe's first."""
    reference, recipe, ids = trial.reference, trial.recipe, probe_ids(trial.ids, trial.reference.vocab_size)
    tokens, probe = ids.shape[1], Sensitivity(reference, ids, trial.scratch)
    for name in trial.tables:
        for form in _ladder(trial.weight(name), recipe.format_of(name)):
            probe.branch_tables((name, form), {name: form})
    for layer, of_layer in enumerate(trial.matrices):
        with reference.layer(layer, tokens) as run:
            probe.advance(run)
        for name in of_layer:
            weight = trial.weight(name)
            for form in _ladder(weight, recipe.format_of(name)):
                with reference.layer(layer, tokens, blocks={name: rounded_plainly(weight, form)}) as run:
                    probe.branch((name, form), run)
    for form in _ladder(trial.weight(trial.head), recipe.format_of(trial.head)):
        probe.branch_head((trial.head, form), form)
    return probe.divergences()


def _formats(trial: Trial, name: str) -> list[MatrixFormat]:
    """The formats that a matrix may have, the recipe's first and the best last."""
    weight = trial.weight(name)
    ladder = _ladder(weight, trial.recipe.format_of(name))
    return [*ladder, FLOATS] if ladder and math.prod(weight.shape) <= SMALL else ladder


def _ladder(weight: LazyTensor, form: MatrixFormat) -> list[MatrixFormat]:
    """``form`` and the smaller blocks there are; nothing where it is floats."""
    if form == FLOATS:
        return []
    block_size = block_size_for(weight.shape[1], form.block_size)
    smaller = _SMALLEST if math.prod(weight.shape) <= SMALL else _SMALLER
    return [form, *(replace(form, block_size=size) for size in smaller if size < block_size)]
