"""Construction: what of a bundle depends on how its graphs come about, by a family's blocks or by tracing."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.manifest import KVSpec, Phase, Quantization, RotaryTable
from edgegen_export.calibration.calibrate import Calibrated
from edgegen_export.calibration.prequantized import Repacking
from edgegen_export.checkpoint import LazyTensor
from edgegen_export.graph.builder import GraphBuilder
from edgegen_export.graph.parameters import Parameters
from edgegen_export.graph.requirements import MINIMUM_ONNXRUNTIME
from edgegen_export.parity.compare import Reference
from edgegen_export.quantize.block_store import BlockStore

Via = Literal["edgegen", "optimum"]
"""Who makes the graphs: edgegen of the blocks of a family, or optimum by tracing the model."""


class Calibrate(Protocol):
    """Prepares tensors for quantization, on ids [rows, t]; see :func:`calibrated_weights.calibrate`."""

    def __call__(
        self,
        ids: NDArray[np.int64],
        recipe: Quantization,
        store: BlockStore,
        budget: float | None,
        on_layer: Callable[[int, int], None],
    ) -> Calibrated: ...


@dataclass(frozen=True, slots=True, eq=False)
class LayerStates:
    """``build(kv, params)`` makes a graph that gives the hidden states behind each layer (``decoder.build_states``);
    ``of_model(ids)`` gives the unquantized model's, float32 [b, t, d], one layer after the other."""

    build: Callable[[KVSpec, Parameters], GraphBuilder]
    of_model: Callable[[NDArray[np.int64]], Iterator[NDArray[np.float32]]]


@dataclass(frozen=True, slots=True, eq=False)
class Construction:
    """``build(kv, params, phase)`` makes a graph over ``tensors``; ``reference`` is what it is compared with.

    ``identity``: what its function depends on besides ``tensors``.
    ``kv``: the cache in float32. ``kv_scales(tensors, ids)``: what its keys and values are divided by in int8, those of
    ``tensors`` on ids [windows, t], as tensors for the graphs; None where the graphs take no such cache.
    ``calibrate``: how the tensors are prepared for quantization, where that is known; ``repack``: what becomes of a
    recipe where they are quantized already.
    ``layer_states``: how to look at the hidden states between layers, where layers are known.
    ``experts``: modules of matrices of experts, whose operator takes 8 bits.
    ``warnings``: what the user should know of how it came about; ``made_with``: versions of what had a hand in it.
    """

    tensors: Mapping[str, LazyTensor]
    build: Callable[[KVSpec, Parameters, Phase], GraphBuilder]
    kv: KVSpec
    reference: Reference
    parameters: int
    hidden_size: int
    vocab_size: int
    max_context: int
    identity: str = ""
    minimum_onnxruntime: str = MINIMUM_ONNXRUNTIME
    rotary: tuple[RotaryTable, ...] = ()
    kv_scales: Callable[[Mapping[str, LazyTensor], NDArray[np.int64]], dict[str, LazyTensor]] | None = None
    calibrate: Calibrate | None = None
    repack: Callable[[Quantization], Repacking] = Repacking
    layer_states: LayerStates | None = None
    experts: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    made_with: dict[str, str] = field(default_factory=dict[str, str])
