"""AssistantCheckpoint: an assistant of Gemma 4 in a checkpoint of its own, which reads a model's KV cache."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.manifest import WANTED_STATES, HiddenStates, MatrixFormat, Quantization
from edgegen.errors import TensorError, UnsupportedModelError, refuse_any
from edgegen_export.architecture.binding import bind
from edgegen_export.architecture.components.attention import Attention
from edgegen_export.architecture.components.draft_input import AssistantInput
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.folding import folded
from edgegen_export.architecture.tensors import matrices_around
from edgegen_export.checkpoint import Checkpoint, unpacked
from edgegen_export.checkpoint.base_names import without_prefix
from edgegen_export.families.drafts.gemma4_assistant import (
    GEMMA4_ASSISTANT,
    OF_MODELS,
    ORDERING,
    Gemma4Assistant,
    read_gemma4_assistant,
)
from edgegen_export.files.progress import ExportProgress
from edgegen_export.graph.builder import GraphBuilder
from edgegen_export.graph.cache_head import build_cache_head, cache_head_name, cache_read
from edgegen_export.graph.decoder import HIDDEN_SCALE, HIDDEN_STATES, build_with_hidden, kv_spec, rotary_tables
from edgegen_export.graph.fused import fused_name
from edgegen_export.graph.parameters import Parameters
from edgegen_export.quantize.recipe import EIGHT_BITS
from edgegen_export.source.model_source import DraftGraph, HiddenGraphs
from edgegen_export.tensors.lazy import LazyTensor


@dataclass(frozen=True, slots=True, eq=False)
class BoundAssistant:
    """An assistant bound to its ``model``: a decoder of its layers, its ``tensors`` by our names of such a decoder, and
    the ids [clusters, size] of the clusters of its vocabulary, where it has any."""

    config: DecoderConfig
    model: DecoderConfig
    tensors: Mapping[str, LazyTensor]
    ordering: NDArray[np.int32] | None

    def hidden_graphs(self, model: DecoderConfig, scale: NDArray[np.float32]) -> HiddenGraphs:
        """The model's prefill graphs, with the hidden states of the positions that logits are wanted of."""
        scaled = bool((scale != 1).any())
        return HiddenGraphs(
            HiddenStates(WANTED_STATES, len(scale)),
            {HIDDEN_SCALE: LazyTensor.from_array(scale)} if scaled else {},
            lambda kv, params: build_with_hidden(model, params, kv, scaled=scaled, of_wanted=True),
        )

    def draft_graph(self, recipe: Quantization) -> DraftGraph:
        """Its graphs over the model's KV cache, with its weights stored by ``recipe``."""
        config, own, stored = self.config, self.config.only(AssistantInput), cache_head_name(self.config)
        kv, layers = cache_read(config, kv_spec(self.model))
        exceptions: dict[str, MatrixFormat] = {stored("embed" if config.tied_head else "head"): recipe.embedding}
        if 0 < recipe.linear.bits < EIGHT_BITS.bits:
            exceptions |= {stored(fused_name(one)): EIGHT_BITS for one in matrices_around(config)}

        def build(params: Parameters) -> GraphBuilder:
            return build_cache_head(config, own, self.model, params, kv, self.ordering)

        def build_int8(params: Parameters) -> GraphBuilder:
            over = replace(kv, dtype="int8")
            return build_cache_head(config, own, self.model, params, over, self.ordering)

        return DraftGraph(
            output=HiddenStates(HIDDEN_STATES, own.backbone),
            kv=kv,
            rotary=tuple(rotary_tables(config).values()),
            tensors={stored(name): tensor for name, tensor in self.tensors.items()},
            exceptions=exceptions,
            build=build,
            model_layers=layers,
            build_int8=build_int8,
        )


@dataclass(frozen=True, slots=True, eq=False)
class AssistantCheckpoint:
    """The checkpoint ``source`` of an assistant, opened, and what its ``config.json`` describes."""

    source: str
    assistant: Gemma4Assistant
    tensors: Mapping[str, LazyTensor]

    @classmethod
    def of(cls, source: str, found: Checkpoint, progress: ExportProgress) -> "AssistantCheckpoint":
        """Read the checkpoint ``found`` under the name ``source``.

        Raises:
            CheckpointError: it cannot be read.
            UnsupportedModelError: it asks for what is not read.
        """
        assistant = read_gemma4_assistant(found.config)
        plain = unpacked(found, GEMMA4_ASSISTANT.base_names(assistant.decoder), progress.warn)
        return cls(source, assistant, plain.tensors)

    def refuse_mismatch(self, model: DecoderConfig, config: Mapping[str, Any]) -> None:
        """Refuse an assistant that is not of such a model, whose ``config.json`` is ``config``.

        Raises:
            UnsupportedModelError: it is no Gemma 4, sizes differ, or the assistant has layers that could not read its.
        """
        kind, own = config.get("model_type"), self.assistant
        if kind not in OF_MODELS:
            raise UnsupportedModelError(f"{self.source} is an assistant of Gemma 4, and the model is a {kind}")
        problems = [
            f"its {what} is {ours}, and the model's {theirs}"
            for what, ours, theirs in (
                ("backbone_hidden_size", own.own.backbone, model.hidden_size),
                ("vocab_size", own.decoder.vocab_size, model.vocab_size),
            )
            if ours != theirs
        ]
        for layer, (reading, source) in enumerate(
            zip(own.decoder.attentions.values(), own.sources(model), strict=True)
        ):
            kept = None if source is None else model.attentions[source]
            if problem := _unreadable(reading, kept):
                problems.append(f"its layer {layer} {problem}")
        refuse_any(problems, UnsupportedModelError, f"{self.source} is not an assistant of this model: ")

    def decoder(self, model: DecoderConfig, whole: DecoderConfig) -> DecoderConfig:
        """The assistant of ``model`` as a decoder; ``whole``: the model as its config describes it."""
        return self.assistant.of(model, [source for source in self.assistant.sources(whole) if source is not None])

    def bound(self, model: DecoderConfig, embedding: LazyTensor, whole: DecoderConfig) -> BoundAssistant:
        """The assistant of ``model``, which as its config describes it is ``whole``; the embedding is the model's.

        Raises:
            TensorError: its tensors do not fit its config.
        """
        config = self.decoder(model, whole)
        tensors, ordering = dict(self.tensors), None
        if self.assistant.own.clusters:
            ordering = self._ordering(tensors)
        return BoundAssistant(config, model, folded(config, bind(GEMMA4_ASSISTANT, config, tensors)), ordering)

    def _ordering(self, tensors: dict[str, LazyTensor]) -> NDArray[np.int32]:
        """The ids of each cluster, which are taken out of ``tensors``."""
        vocab_size, clusters = self.assistant.decoder.vocab_size, self.assistant.own.clusters
        name = next((one for one in tensors if without_prefix(one, GEMMA4_ASSISTANT.prefixes) == ORDERING), None)
        if name is None:
            raise TensorError(f"{self.source}: {ORDERING}: missing, which says the ids of each cluster")
        found = tensors.pop(name)
        if found.shape != (vocab_size,):
            raise TensorError(
                f"{self.source}: {name}: shape {list(found.shape)}, but the config asks for {[vocab_size]}"
            )
        ids = np.rint(found.read()).astype(np.int64)
        if not np.array_equal(np.sort(ids), np.arange(vocab_size)):
            raise TensorError(f"{self.source}: {name}: ids of the model expected, each once")
        return ids.astype(np.int32).reshape(clusters, -1)


def _unreadable(reading: Attention, kept: Attention | None) -> str:
    """Why a layer of the assistant cannot read what a layer of the model keeps; empty where it can."""
    kind = "full attention" if reading.window is None else "a sliding window"
    if kept is None:
        return f"has {kind}, and no layer of the model with keys and values has"
    ours, theirs = ((one.head_dim, one.kv_heads, one.window) for one in (reading, kept))
    if ours == theirs:
        return ""
    says = [f"{size}, {heads}" + (f" and {window}" if window else "") for size, heads, window in (ours, theirs)]
    what = "head size and key heads" if reading.window is None else "head size, key heads and window"
    return f"of {kind} has {what} {says[0]}, and the model's {says[1]}"
