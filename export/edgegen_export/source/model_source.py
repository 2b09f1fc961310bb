"""ModelSource: a model to export, whether its graphs are built of a family's blocks or traced by optimum."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.manifest import HiddenStates, KVSpec, MatrixFormat, Model, Phase, Quantization, RotaryTable
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.calibration.calibrate import Calibrated
from edgegen_export.calibration.kv_scales import Entered, KVStatistics
from edgegen_export.checkpoint import Checkpoint
from edgegen_export.files.progress import ExportProgress
from edgegen_export.files.scratch import Scratch
from edgegen_export.graph.builder import GraphBuilder
from edgegen_export.graph.parameters import Parameters
from edgegen_export.parity.compare import UnquantizedModel
from edgegen_export.quantize.block_store import BlockStore
from edgegen_export.quantize.recipe import Scheme
from edgegen_export.tensors.lazy import LazyTensor

Via = Literal["edgegen", "optimum"]
"""Where graphs come from: edgegen builds them of a family's blocks, or optimum traces the model."""

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class ModelFacts:
    """Facts about the model for the manifest; ``kv``: its KV cache in float32; ``made_with``: versions of libraries."""

    model: Model
    kv: KVSpec
    minimum_onnxruntime: str
    rotary: tuple[RotaryTable, ...] = ()
    made_with: dict[str, str] = field(default_factory=dict[str, str])


class Calibrate(Protocol):
    """Prepares a model's tensors for quantization, on ids [rows, t]; see :func:`calibration.calibrate.calibrate`."""

    def __call__(
        self,
        ids: Ids,
        recipe: Quantization,
        store: BlockStore,
        budget: float | None,
        on_layer: Callable[[int, int], None],
        scratch: Scratch,
        *,
        held_out: Ids,
    ) -> Calibrated: ...


@dataclass(frozen=True, slots=True)
class Plan:
    """How weights are to be stored. ``calibrate``: to be done first, None where they are rounded plainly."""

    recipe: Quantization
    calibrate: Calibrate | None = None
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class HiddenGraphs:
    """Prefill graphs that return the hidden states after the final norm besides the logits.

    ``output``: as the manifest names it; ``tensors``: what the graphs use beside the model's, by our names.
    """

    output: HiddenStates
    tensors: Mapping[str, LazyTensor]
    build: Callable[[KVSpec, Parameters], GraphBuilder]


@dataclass(frozen=True, slots=True)
class DraftGraph:
    """The graph of a multi-token prediction head.

    ``output``: its output of hidden states; ``kv``: its own KV cache; ``tensors``: what
    it uses beside the model's, by our names; ``exceptions``: how those of its matrices are stored that are not as those
    of the model's layers. ``model_layers``: of each layer of ``kv``, the model's whose KV cache it is, where it has
    none of its own; ``build_int8``: the graph over an int8 one, then.
    """

    output: HiddenStates
    kv: KVSpec
    rotary: tuple[RotaryTable, ...]
    tensors: Mapping[str, LazyTensor]
    exceptions: Mapping[str, MatrixFormat]
    build: Callable[[Parameters], GraphBuilder]
    model_layers: tuple[int, ...] = ()
    build_int8: Callable[[Parameters], GraphBuilder] | None = None


class ModelSource(Protocol):
    """``tensors`` are the weights of the graphs, by our names; ``reference`` is what the bundle is compared with.

    ``identity``: what the model computes depends on it and on the tensors alone. ``can_calibrate``: whether the model
    can run before its weights are stored. ``warnings``: what the user should know.
    """

    @property
    def facts(self) -> ModelFacts: ...
    @property
    def tensors(self) -> Mapping[str, LazyTensor]: ...
    @property
    def reference(self) -> UnquantizedModel: ...
    @property
    def identity(self) -> str: ...
    @property
    def can_calibrate(self) -> bool: ...
    @property
    def warnings(self) -> tuple[str, ...]: ...

    def build(self, kv: KVSpec, params: Parameters, phase: Phase) -> GraphBuilder:
        """The graph of a phase, over such a KV cache."""
        ...

    def build_states(self, kv: KVSpec, params: Parameters) -> GraphBuilder | None:
        """A graph that returns the hidden states after each layer; None where layers are not known."""
        ...

    def hidden_graphs(self, tensors: Mapping[str, LazyTensor]) -> HiddenGraphs | None:
        """Prefill graphs with hidden states, for ``tensors`` as they are stored; None where the final norm is not
        known."""
        ...

    def draft_graph(
        self, tensors: Mapping[str, LazyTensor], recipe: Quantization, seen: Collection[int]
    ) -> DraftGraph | None:
        """The graph of its multi-token prediction head, for ``tensors`` as they are stored by ``recipe``; None where it
        has none.

        ``seen``: ids that it has to propose, whatever others it leaves out.
        """
        ...

    def plan(self, scheme: Scheme, *, fast: bool) -> Plan:
        """How the weights are stored for ``scheme``; ``fast``: by plain rounding."""
        ...

    def kv_statistics(
        self, tensors: Mapping[str, LazyTensor], ids: Ids, progress: ExportProgress, entered: Entered | None
    ) -> KVStatistics:
        """Return the statistics for quantized KV caches, for ``tensors`` on ids [windows, t], or on the states before
        each layer where they are known; empty without an int8 variant."""
        ...


class SourceLoader(Protocol):
    """Makes a :class:`ModelSource` of a checkpoint, in the order in which an export can fail cheaply."""

    def check(self, config: Mapping[str, Any]) -> object:
        """Refuse by ``config.json`` alone, before weights are fetched or opened."""
        ...

    def decoder(self, config: Mapping[str, Any]) -> DecoderConfig | None:
        """The model's hyperparameters, where ``config.json`` tells them; to be asked after :meth:`check`."""
        ...

    def draft_decoder(self, config: Mapping[str, Any]) -> DecoderConfig | None:
        """Return the head that proposes further tokens in the model's bundle, as a decoder of its layers; None where
        there is none, as far as ``config.json`` tells. To be asked like :meth:`decoder`."""
        ...

    def ready(self, checkpoint: Checkpoint) -> Checkpoint:
        """The checkpoint that :meth:`load` reads."""
        ...

    def load(self, checkpoint: Checkpoint, scratch: Path) -> ModelSource:
        """The long part. ``scratch``: a folder whose files last as long as the export."""
        ...
