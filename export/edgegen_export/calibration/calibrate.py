"""calibrate(): weights smoothed and quantized on a calibration text, by the strategy of their recipe."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.manifest import Quantization
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.calibration.bit_budget import BitBudget
from edgegen_export.calibration.int4_allocation import Int4Allocation
from edgegen_export.calibration.int8_refinement import Int8Refinement
from edgegen_export.calibration.layer_walk import LayerWalk, layer_matrices
from edgegen_export.calibration.prequantized import KeepPrequantized
from edgegen_export.calibration.sensitivity import judged, probed
from edgegen_export.calibration.strategy import Strategy
from edgegen_export.checkpoint import LazyTensor
from edgegen_export.graph.layerwise_model import LayerwiseModel
from edgegen_export.quantize.block_store import BlockStore
from edgegen_export.scratch import Scratch


@dataclass(frozen=True, slots=True)
class Calibrated:
    """Tensors for the graphs, the recipe with what was decided, and what the user should know of it."""

    tensors: dict[str, LazyTensor]
    recipe: Quantization
    warnings: tuple[str, ...] = ()


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
) -> Calibrated:
    """Smooth ``tensors`` for ids [rows, t], and choose the format of every matrix. Where the recipe says GPTQ, the
    layers' matrices are quantized into ``store``. A matrix whose inputs cannot be rounded in the recipe's blocks gets
    smaller ones, or none.

    ``budget``: bits per weight, of all matrices; by default that of :mod:`bit_budget`.
    ``on_layer`` hears how many layers of how many are done. ``scratch``: where activations are kept.

    Raises:
        UsageError: the budget is less than what the matrices take in 4 bits.
        ExportError: the model's hidden states are not finite.
    """
    strategy: Strategy
    match recipe.method:
        case "gptq":
            matrices = [name for i in range(config.num_layers) for name in layer_matrices(config, i)]
            matrices += ["embed"] if config.tied_head else ["embed", "head"]
            bits = BitBudget(tensors, matrices, recipe, budget)
            probes = probed(ids, config.vocab_size)
            strategy = Int4Allocation(reference, probes, store, bits, scratch, tied_head=config.tied_head)
        case "repacked":
            strategy = KeepPrequantized()
        case "rounding":
            strategy = Int8Refinement(reference, config, judged(ids, config.vocab_size), scratch)
    walk = LayerWalk(tensors, config, reference, recipe, scratch, hessians=strategy.hessians)
    for matrix in walk.matrices(ids, strategy.enter, on_layer):
        strategy.add(matrix)
    head_hessian = walk.head()
    recipe = walk.recipe
    decision = strategy.decide(walk.tensors, recipe, head_hessian)
    better = {name: form for name, form in decision.formats.items() if form != recipe.format_of(name)}
    recipe = replace(recipe, exceptions=recipe.exceptions | better)
    return Calibrated(walk.tensors, recipe, (*map(_left_in_floats, walk.left_in_floats), *decision.warnings))


def _left_in_floats(name: str) -> str:
    return f"{name} stays in 32-bit floats: what it takes has outliers that 8 bits cannot hold beside the rest"
