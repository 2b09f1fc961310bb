"""calibrate(): weights smoothed and quantized on a calibration text, by the strategy of their recipe."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.manifest import Quantization
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.calibration.bit_budget import BitBudget
from edgegen_export.calibration.int4_allocation import Int4Allocation
from edgegen_export.calibration.int8_refinement import Int8Refinement
from edgegen_export.calibration.kv_scales import Entered, other_texts
from edgegen_export.calibration.layer_walk import LayerWalk, OnRun, layer_matrices
from edgegen_export.calibration.moves import Moves
from edgegen_export.calibration.prequantized import KeepPrequantized
from edgegen_export.calibration.sensitivity import eval_ids, probe_ids
from edgegen_export.calibration.strategy import Strategy
from edgegen_export.calibration.text import Amount
from edgegen_export.calibration.trial import Trial
from edgegen_export.files.scratch import Scratch
from edgegen_export.graph.decoder import rotary_tables
from edgegen_export.graph.layerwise_model import LayerRun, LayerwiseModel
from edgegen_export.parity.extent import LARGE
from edgegen_export.quantize.block_store import BlockStore
from edgegen_export.tensors.lazy import LazyTensor


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Tensors for the graphs, the recipe with what was decided, and what the user should know of it; ``moves``: what
    was done to the matrices; ``entered``: the states before each layer, [b, t, columns] of some rows of the text."""

    tensors: dict[str, LazyTensor]
    recipe: Quantization
    warnings: tuple[str, ...] = ()
    moves: Moves = field(default_factory=Moves)
    entered: Entered = field(default_factory=dict[int, list[NDArray[np.float32]]])


def calibrate(
    tensors: Mapping[str, LazyTensor],
    config: DecoderConfig,
    reference: LayerwiseModel,
    ids: NDArray[np.int64],
    recipe: Quantization,
    store: BlockStore,
    budget: float | None,
    on_layer: Callable[[int, int], None],
    scratch: Scratch,
    *,
    held_out: NDArray[np.int64],
    plain: Quantization,
) -> Calibrated:
    """Smooth ``tensors`` for ids [rows, t], and choose the format of every matrix. Where the recipe says GPTQ, the
    layers' matrices are quantized into ``store``. A matrix whose inputs cannot be rounded in the recipe's blocks gets
    smaller ones, or none.

    ``budget``: bits per weight, of all matrices; by default that of :mod:`bit_budget`. Without one, ``plain`` rounding
    takes the place of GPTQ where it costs less on the ids ``held_out`` [rows, t].
    ``on_layer`` hears how many layers of how many are done. ``scratch``: where activations are kept.

    Raises:
        UsageError: the budget is less than what the matrices take in 4 bits.
        ExportError: the model's hidden states are not finite.
    """
    strategy: Strategy
    match recipe.method:
        case "gptq":
            matrices = [*dict.fromkeys(name for i in range(config.num_layers) for name in layer_matrices(config, i))]
            matrices += ["embed"] if config.tied_head else ["embed", "head"]
            bits = BitBudget(tensors, matrices, recipe, budget)
            probes = probe_ids(ids, config.vocab_size)
            strategy = Int4Allocation(reference, config, probes, store, bits, recipe.embedding, scratch)
        case "repacked":
            strategy = KeepPrequantized()
        case "rounding":
            strategy = Int8Refinement(reference, config, eval_ids(ids, config.vocab_size), scratch)
    parameters = sum(math.prod(tensor.shape) for tensor in tensors.values())
    rotary = bool(rotary_tables(config))  # else states depend on the positions that a KV cache is calibrated at
    walk = LayerWalk(
        tensors,
        config,
        reference,
        recipe,
        scratch,
        hessians=strategy.hessians,
        in_int8=parameters >= LARGE,
        kept_rows=max(1, Amount.of(parameters).few // ids.shape[1]) if rotary else 0,
        others=other_texts(config.vocab_size, ids.shape[1]) if rotary else None,
    )
    held_out = eval_ids(held_out, config.vocab_size)
    judged, enter, exact = recipe.method == "gptq" and budget is None, strategy.enter, None
    if judged and enter and held_out.shape[1] <= ids.shape[1]:  # then each layer, which is open, runs these ids too
        exact = reference.embed(held_out)
        enter = _together(enter, exact)
    with strategy.beside:
        for matrix in walk.matrices(ids, enter, on_layer):
            strategy.add(matrix)
            del matrix  # and its layer's weights
    head_hessian = walk.head()
    recipe = walk.recipe
    decision = strategy.decide(walk.tensors, recipe, head_hessian)
    better = {name: form for name, form in decision.formats.items() if form != recipe.format_of(name)}
    recipe = replace(recipe, exceptions=recipe.exceptions | better)
    if judged:
        matrices, tied = [layer_matrices(config, i) for i in range(config.num_layers)], config.tied_head
        rounded = Trial(tensors, reference, matrices, held_out, plain, tied, scratch)
        found = Trial(walk.tensors, reference.with_tensors(walk.tensors), matrices, held_out, recipe, tied, scratch)
        of_plain, exact = rounded.divergence(rounded.forms, exact)
        of_gptq, _ = found.divergence(found.forms, exact, store.get)
        if of_plain < of_gptq:
            return Calibrated(
                dict(tensors), plain, (_rounded_plainly(of_plain, of_gptq),), entered=walk.entered if rotary else {}
            )
    warnings = (*map(_left_in_floats, walk.left_in_floats), *decision.warnings)
    return Calibrated(walk.tensors, recipe, warnings, walk.moves, walk.entered if rotary else {})


def _together(enter: OnRun, states: NDArray[np.float32]) -> OnRun:
    """``enter``, and take ``states`` [b, t, d] through the layer, in their place."""

    def entered(run: LayerRun) -> None:
        enter(run)
        states[...] = run(states)

    return entered


def _rounded_plainly(of_plain: float, of_gptq: float) -> str:
    return (
        f"weights are rounded plainly, as --fast does: on text that was not calibrated on that costs this model "
        f"{of_plain:.2g} nats per token, and GPTQ {of_gptq:.2g}"
    )


def _left_in_floats(name: str) -> str:
    return f"{name} stays in 32-bit floats: what it takes has outliers that 8 bits cannot hold beside the rest"
