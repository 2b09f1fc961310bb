"""TracedSource: a model of an architecture that edgegen has no family for, its graphs traced by optimum.

They are slower than edgegen's own, and tracing takes the whole model in memory, more than once.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.manifest import KVSpec, Model, Phase, Quantization
from edgegen.errors import ExportError, UsageError
from edgegen.model.ort_session import open_session
from edgegen.system import trim_memory
from edgegen_export.architecture.components.component import LEAST_ONNXRUNTIME
from edgegen_export.calibration.kv_scales import Entered, KVStatistics
from edgegen_export.checkpoint import Checkpoint
from edgegen_export.files.progress import ExportProgress
from edgegen_export.graph.builder import GraphBuilder
from edgegen_export.graph.parameters import Parameters
from edgegen_export.quantize.recipe import ROUNDED, Scheme
from edgegen_export.source.model_source import ModelFacts, Plan
from edgegen_export.source.optimum.trace import LoadedModel, check_traceable, read_config, versions
from edgegen_export.source.optimum.traced_decoder import build_traced
from edgegen_export.source.optimum.traced_graph import IDS, LOGITS, MASK, POSITIONS, TracedGraph
from edgegen_export.tensors.lazy import LazyTensor

TOLERANCE = 1e-3
"""Largest difference of a logit between the trace and the model that was traced, relative to the largest logit."""

_MUCH = 0.05
"""Share of the weights that may stay in floats unmentioned."""

_LENGTHS = (24, 11, 1, 1)
"""Tokens of the steps in which a trace is tried; none is what it was made with."""

Array = NDArray[np.float32]
Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class TracedSource:
    """The model whose trace ``traced`` is."""

    facts: ModelFacts
    traced: TracedGraph
    reference: "TracedModel"
    warnings: tuple[str, ...]
    identity: str = ""
    can_calibrate: bool = False

    @property
    def tensors(self) -> Mapping[str, LazyTensor]:
        return self.traced.tensors

    def build(self, kv: KVSpec, params: Parameters, phase: Phase) -> GraphBuilder:
        return build_traced(self.traced, phase, params)

    def build_states(self, kv: KVSpec, params: Parameters) -> None:
        """Layers are not known."""

    def draft_graph(self, tensors: Mapping[str, LazyTensor], recipe: Quantization, seen: Collection[int]) -> None:
        """Heads are not traced."""

    def hidden_graphs(self, tensors: Mapping[str, LazyTensor]) -> None:
        """Nor is the final norm."""

    def plan(self, scheme: Scheme, *, fast: bool) -> Plan:
        return Plan(ROUNDED[scheme])

    def kv_statistics(
        self, tensors: Mapping[str, LazyTensor], ids: Ids, progress: ExportProgress, entered: Entered | None
    ) -> KVStatistics:
        return KVStatistics()


@dataclass(frozen=True, slots=True)
class TraceLoader:
    """Traces checkpoints, for bundles whose weights are stored by ``recipe``."""

    recipe: Quantization
    max_context: int | None
    progress: ExportProgress

    def check(self, config: Mapping[str, Any]) -> None:
        """Refuse models that optimum cannot trace.

        Raises:
            ExportError: optimum is not installed.
            UnsupportedModelError: it does not trace this architecture.
        """
        check_traceable(config)

    def decoder(self, config: Mapping[str, Any]) -> None:
        """Not known before the model is traced."""

    def draft_decoder(self, config: Mapping[str, Any]) -> None:
        """Models are traced without what proposes further tokens."""

    def ready(self, checkpoint: Checkpoint) -> Checkpoint:
        """The checkpoint as it is, for transformers to load.

        Raises:
            UsageError: the checkpoint is a GGUF file.
        """
        if checkpoint.gguf is not None:
            raise UsageError(f"{checkpoint.gguf} is a GGUF file, which optimum does not trace: leave --via optimum out")
        return checkpoint

    def load(self, checkpoint: Checkpoint, scratch: Path) -> TracedSource:
        """Trace the checkpoint. The trace lies in ``scratch``, and is needed until the bundle was compared with it.

        Raises:
            UsageError: the model does not accept ``max_context`` positions.
            CheckpointError: it cannot be loaded or traced.
            ExportError: the trace computes something else than the model.
        """
        config = read_config(checkpoint.path, self.max_context)
        self.progress.stage("loading the model")
        loaded = LoadedModel(checkpoint.path, config.model_type)
        self.progress.stage("tracing with optimum")
        path = loaded.trace(scratch)
        traced = TracedGraph.read(path)
        reference = TracedModel(path, traced.kv)
        reference.check(loaded.logits, traced.vocab_size, config.max_context)
        model = Model(
            family=checkpoint.config["model_type"],
            parameters=loaded.parameters,
            num_layers=len(traced.kv.layers),
            hidden_size=config.hidden_size,
            vocab_size=traced.vocab_size,
            max_context=config.max_context,
        )
        del loaded
        trim_memory()
        return TracedSource(
            ModelFacts(model, traced.kv, LEAST_ONNXRUNTIME, made_with=versions()),
            traced,
            reference,
            tuple(filter(None, [config.warning, _left_in_floats(traced, self.recipe)])),
        )


def _left_in_floats(traced: TracedGraph, recipe: Quantization) -> str | None:
    """A warning, where much of the model is in tensors that are no matrices of linear layers or embeddings."""
    sizes = {name: math.prod(tensor.shape) for name, tensor in traced.tensors.items()}
    share = sum(sizes[name] for name in traced.vectors.values()) / sum(sizes.values())
    if not recipe.linear.block_size or share <= _MUCH:
        return None
    return f"{share:.0%} of the weights lie in tensors that cannot be quantized here, and stay 32-bit floats"


class TracedModel:
    """Optimum's own graph, as it wrote it, in float32."""

    def __init__(self, path: Path, kv: KVSpec) -> None:
        self._path = path
        self._kv = kv

    def hidden(
        self, texts: Sequence[NDArray[np.int64]], on_states: Callable[[Array], None] | None = None
    ) -> list[Array]:
        """The logits themselves, [b, t, vocab]: not every trace shows where the head begins, nor where a layer ends."""
        session = open_session(self._path)
        return [
            np.concatenate([self._run(session, row[None], self._no_past())[LOGITS] for row in ids]) for ids in texts
        ]

    def logits(self, hidden: Array) -> Array:
        return hidden

    def check(self, logits: Callable[[NDArray[np.int64]], Array], vocab_size: int, max_context: int) -> None:
        """Compare with the model that was traced: where it branches, a trace knows one branch only.

        ``logits``: the model's, of ids [1, t] without past, [1, t, vocab].

        Raises:
            ExportError: logits differ.
        """
        length = min(sum(_LENGTHS), max_context)
        ids = np.random.default_rng(0).integers(0, vocab_size, (1, length))
        expected = logits(ids)
        if not np.isfinite(expected).all():
            return  # the comparison with the bundle will say so
        session, outputs, start, difference = open_session(self._path), self._no_past(), 0, 0.0
        for count in _LENGTHS:
            step = ids[:, start : start + count]
            if step.size:
                outputs = self._run(session, step, outputs)
                found = np.abs(outputs[LOGITS] - expected[:, start : start + count])
                difference = max(difference, float(found.max()))
            start += count
        if not difference <= TOLERANCE * max(1.0, float(np.abs(expected).max())):
            raise ExportError(
                "the graph that optimum traced computes something else than the model it was traced of: "
                f"logits differ by {difference:.3g}."
            )

    def _no_past(self) -> dict[str, Array]:
        empty = {layer: np.zeros((1, layer.kv_heads, 0, layer.head_dim), np.float32) for layer in self._kv.layers}
        return {name: array for x, array in empty.items() for name in (x.present_key, x.present_value)}

    def _run(self, session: Any, ids: NDArray[np.int64], before: dict[str, Array]) -> dict[str, Array]:
        """All outputs, by name, for ids [1, t] after a step with the outputs ``before``."""
        feeds: dict[str, NDArray[Any]] = {IDS: ids}
        for layer in self._kv.layers:
            feeds |= {layer.past_key: before[layer.present_key], layer.past_value: before[layer.present_value]}
        past, tokens = before[self._kv.layers[0].present_key].shape[2], ids.shape[1]
        feeds[MASK] = np.ones((1, past + tokens), np.int64)
        feeds[POSITIONS] = np.arange(past, past + tokens)[None]
        wanted = {value.name for value in session.get_inputs()}
        names = [value.name for value in session.get_outputs()]
        found = session.run(names, {name: array for name, array in feeds.items() if name in wanted})
        return dict(zip(names, found, strict=True))
