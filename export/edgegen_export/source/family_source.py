"""FamilySource: a checkpoint of a known family, whose graphs are built of the blocks that all families share."""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.manifest import HiddenStates, KVSpec, MatrixFormat, Model, Phase, Quantization
from edgegen.errors import BundleError, UsageError
from edgegen.model.ort_session import require_version
from edgegen_export.architecture.architecture import Architecture, find_architecture
from edgegen_export.architecture.binding import bind, bind_draft_head
from edgegen_export.architecture.components.draft_input import DraftInput
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.folding import final_multiplier, folded
from edgegen_export.architecture.tensors import expert_matrices, least_onnxruntime, matrices_around
from edgegen_export.calibration.calibrate import calibrate
from edgegen_export.calibration.kv_scales import Entered, KVStatistics, kv_statistics
from edgegen_export.calibration.prequantized import repacking
from edgegen_export.calibration.proposed_ids import proposed_ids, runs
from edgegen_export.checkpoint import Adapter, Checkpoint, merge_adapter, unpacked
from edgegen_export.families.refused import why_not
from edgegen_export.families.wrapped import towers
from edgegen_export.files.disk import refuse_download
from edgegen_export.files.progress import KV_SCALES, ExportProgress
from edgegen_export.graph.builder import GraphBuilder
from edgegen_export.graph.decoder import (
    HIDDEN_SCALE,
    HIDDEN_STATES,
    build_decode,
    build_prefill,
    build_states,
    build_with_hidden,
    kv_spec,
    rotary_tables,
)
from edgegen_export.graph.draft_head import CUT_HEAD, build_draft_head, stored_name
from edgegen_export.graph.fused import fused_name
from edgegen_export.graph.layerwise_model import LayerwiseModel
from edgegen_export.graph.parameters import Parameters
from edgegen_export.parity.extent import LARGE
from edgegen_export.quantize.recipe import CALIBRATED, EIGHT_BITS, ROUNDED, Scheme, of_ternary
from edgegen_export.source.draft_checkpoint import BoundDraft, open_draft
from edgegen_export.source.model_source import DraftGraph, HiddenGraphs, ModelFacts, Plan
from edgegen_export.tensors.lazy import LazyTensor

Ids = NDArray[np.int64]

_HEAD_LAYERS = ("mtp_num_hidden_layers", "num_mtp_layers", "num_nextn_predict_layers")
"""Settings with the number of layers of a multi-token prediction head."""


@dataclass(frozen=True, slots=True, eq=False)
class BoundHead:
    """A multi-token prediction head: a decoder of its layers, and its ``tensors`` by our names of such a decoder."""

    config: DecoderConfig
    tensors: Mapping[str, LazyTensor]


@dataclass(frozen=True, slots=True, eq=False)
class FamilySource:
    """The model ``config`` over ``tensors``, by our names; ``head``, ``draft``: what proposes further tokens, if one of
    them does."""

    facts: ModelFacts
    config: DecoderConfig
    tensors: Mapping[str, LazyTensor]
    reference: LayerwiseModel
    warnings: tuple[str, ...]
    can_calibrate: bool = True
    head: BoundHead | None = None
    draft: BoundDraft | None = None

    @property
    def identity(self) -> str:
        return repr(self.config)

    def build(self, kv: KVSpec, params: Parameters, phase: Phase) -> GraphBuilder:
        make = build_prefill if phase == "prefill" else build_decode
        return make(self.config, params, kv)

    def build_states(self, kv: KVSpec, params: Parameters) -> GraphBuilder:
        return build_states(self.config, params, kv)

    def hidden_graphs(self, tensors: Mapping[str, LazyTensor]) -> HiddenGraphs:
        config, scale = self.config, _hidden_scale(self.config, self.tensors, tensors)
        if self.draft is not None:
            return self.draft.hidden_graphs(config, scale)
        scaled = bool((scale != 1).any())
        return HiddenGraphs(
            HiddenStates(HIDDEN_STATES, len(scale)),
            {HIDDEN_SCALE: LazyTensor.from_array(scale)} if scaled else {},
            lambda kv, params: build_with_hidden(config, params, kv, scaled=scaled),
        )

    def draft_graph(
        self, tensors: Mapping[str, LazyTensor], recipe: Quantization, seen: Collection[int]
    ) -> DraftGraph | None:
        if self.draft is not None:
            return self.draft.draft_graph(recipe)
        if self.head is None:
            return None
        own, config, kv = self.head.config.only(DraftInput), self.head.config, kv_spec(self.head.config)
        stored = {stored_name(name): tensor for name, tensor in self.head.tensors.items()}
        stored = {name: tensor for name, tensor in stored.items() if name not in tensors}
        # What smoothing has moved from the final norm into the matrix after it is in this norm's way, too.
        moved = _hidden_scale(self.config, self.tensors, tensors) * np.float32(final_multiplier(self.config))
        scaled = own.normed_output and bool((moved != 1).any())
        if (moved != 1).any():
            final = stored_name("final_norm.weight")
            stored[final] = LazyTensor.from_array(stored[final].read() / moved)
        if scaled:
            stored[stored_name(HIDDEN_SCALE)] = LazyTensor.from_array(moved)
        proposed = proposed_ids(config.vocab_size, seen) if "head.bias" not in tensors else None
        if proposed is not None:
            head = tensors["embed.weight" if config.tied_head else "head.weight"]
            stored[f"{CUT_HEAD}.weight"] = LazyTensor.concat([head.take(first, last) for first, last in runs(proposed)])
        exceptions = dict[str, MatrixFormat]()
        if 0 < recipe.linear.bits < EIGHT_BITS.bits:
            exceptions |= dict.fromkeys(map(fused_name, matrices_around(config)), EIGHT_BITS)
            exceptions |= dict.fromkeys(
                map(fused_name, expert_matrices(config)), replace(recipe.linear, symmetric=True)
            )
        return DraftGraph(
            output=HiddenStates(HIDDEN_STATES, config.hidden_size),
            kv=kv,
            rotary=tuple(rotary_tables(config).values()),
            tensors=stored,
            exceptions={stored_name(name): form for name, form in exceptions.items()},
            build=lambda params: build_draft_head(config, own, params, kv, proposed, scaled=scaled),
        )

    def plan(self, scheme: Scheme, *, fast: bool) -> Plan:
        """The scheme's recipe, with what the operators accept, and what is quantized already kept as it is."""
        if self.config.ternary:
            return Plan(of_ternary(scheme))
        recipe, experts = (
            (ROUNDED if fast else CALIBRATED)[scheme],
            tuple(map(fused_name, expert_matrices(self.config))),
        )
        calibrates = recipe.calibrates
        if recipe.linear.bits < EIGHT_BITS.bits and experts:
            without_zeros = replace(recipe.linear, symmetric=True)  # which the operator of experts is not given
            recipe = replace(recipe, exceptions=dict.fromkeys(experts, without_zeros))
        if recipe.linear.bits < EIGHT_BITS.bits:
            around = (fused_name(modules) for modules in matrices_around(self.config))
            recipe = replace(recipe, exceptions={**recipe.exceptions, **dict.fromkeys(around, EIGHT_BITS)})
        repacked = repacking(self.tensors, self.config, experts, recipe)
        measure = None
        if calibrates:
            plain = self.plan(scheme, fast=True).recipe
            measure = partial(calibrate, self.tensors, self.config, self.reference, plain=plain)
        return Plan(repacked.recipe, measure, repacked.warnings)

    def kv_statistics(
        self, tensors: Mapping[str, LazyTensor], ids: Ids, progress: ExportProgress, entered: Entered | None
    ) -> KVStatistics:
        progress.stage(KV_SCALES)
        try:
            large = self.facts.model.parameters >= LARGE
            return kv_statistics(tensors, self.config, self.facts.kv, ids, in_int8=large, entered=entered)
        except BundleError as error:
            progress.warn(f"the bundle gets no variant with an int8 KV cache: {error}")
            return KVStatistics()


class FamilyLoader:
    """Loads checkpoints of the known ``families``, with ``adapter`` merged in where there is one."""

    def __init__(
        self,
        families: tuple[Architecture, ...],
        max_context: int | None,
        adapter: str | None,
        progress: ExportProgress,
        *,
        with_head: bool = True,
        draft_head: str | None = None,
    ) -> None:
        """Open the adapter, where there is one, and the checkpoint ``draft_head`` of a draft. ``with_head``: whether
        multi-token prediction heads are taken.

        Raises:
            CheckpointError: the adapter or the draft cannot be read.
            UnsupportedModelError: the draft is not read.
            ExportError: the disk has no room for its download.
        """
        self._draft = None if draft_head is None else open_draft(draft_head, progress)
        self._families = families
        self._max_context = max_context
        self._progress = progress
        self._with_head = with_head
        self._merging = f"merging {adapter}"
        self._adapter = None
        if adapter is not None:
            self._adapter = Adapter.open(adapter, progress=progress.stage, check_download=refuse_download)

    def check(self, config: Mapping[str, Any]) -> tuple[Architecture, DecoderConfig]:
        """The family of ``config``, and the decoder that it describes.

        Raises:
            UnsupportedModelError: no family has this architecture, or not these settings; or the draft is another's.
            UsageError: the model cannot be exported for that context, or no adapter merged into it.
            BundleError: the installed ONNX Runtime cannot run it.
        """
        architecture = find_architecture(config, self._families, why_not)
        whole = architecture.read_config(config)
        if whole.ternary and self._adapter is not None:
            raise UsageError("an adapter cannot be merged into ternary matrices: leave it out")
        read = whole.for_context(_context(whole, self._max_context))
        require_version(least_onnxruntime(read))
        if self._draft is not None:
            self._draft.refuse_mismatch(whole, {"architectures": architecture.classes, **config})
        return architecture, read

    def decoder(self, config: Mapping[str, Any]) -> DecoderConfig:
        """As :meth:`check`, of which it is the second half."""
        return self.check(config)[1]

    def draft_decoder(self, config: Mapping[str, Any]) -> DecoderConfig | None:
        architecture, read = self.check(config)
        if self._draft is not None:
            return self._draft.decoder(read, architecture.read_config(config))
        head = architecture.draft_head if self._with_head and _may_have_head(config) else None
        return head.config(read) if head else None

    def ready(self, checkpoint: Checkpoint) -> Checkpoint:
        """Unpacked, where it is quantized already, and merged."""
        architecture, config = self.check(checkpoint.config)
        names = architecture.base_names(config)
        checkpoint = unpacked(checkpoint, names, self._progress.warn)
        if self._adapter is None:
            return checkpoint
        self._progress.stage(self._merging)
        return merge_adapter(checkpoint, self._adapter, names, tied_head=config.tied_head, warn=self._progress.warn)

    def load(self, checkpoint: Checkpoint, scratch: Path) -> FamilySource:
        """Bind the checkpoint's tensors, and fold them.

        Raises:
            TensorError: the checkpoint's tensors do not fit its config.
        """
        # The config anew: an adapter may have parted the head from the embedding.
        architecture, config = self.check(checkpoint.config)
        bound = bind(architecture, config, checkpoint.tensors)
        tensors, kv = folded(config, bound), kv_spec(config)
        head, left_out = self._head(architecture, config, checkpoint, bound)
        model = Model(
            family=checkpoint.config["model_type"],
            parameters=sum(math.prod(tensor.shape) for tensor in {id(one): one for one in bound.values()}.values()),
            num_layers=config.num_layers,
            hidden_size=config.hidden_size,
            vocab_size=config.vocab_size,
            max_context=config.max_positions,
        )
        draft, rotary = None, tuple(rotary_tables(config).values())
        if self._draft is not None:
            whole = architecture.read_config(checkpoint.config)
            draft = self._draft.bound(config, bound["embed.weight"], whole)
        longer = (
            f"exported for {config.max_positions} positions; --max-context takes up to {config.longest_context}, "
            "with the frequencies or distances for so many"
        )
        return FamilySource(
            ModelFacts(model, kv, least_onnxruntime(config), rotary),
            config,
            tensors,
            LayerwiseModel(tensors, config, kv),
            (
                *((longer,) if self._max_context is None and config.longest_context > config.max_positions else ()),
                *((f"its {tower} is left out: text only",) if (tower := towers(checkpoint.config)) else ()),
                *left_out,
            ),
            can_calibrate=not config.ternary,
            head=head,
            draft=draft,
        )

    def _head(
        self,
        architecture: Architecture,
        config: DecoderConfig,
        checkpoint: Checkpoint,
        bound: Mapping[str, LazyTensor],
    ) -> tuple[BoundHead | None, list[str]]:
        """The multi-token prediction head of the checkpoint, where there is one; and why it is left out, if it is."""
        if not self._with_head:
            return None, []
        problem = checkpoint.unread_head
        found, unbound = bind_draft_head(architecture, config, checkpoint.tensors, bound) if not problem else ({}, "")
        problem = problem or unbound
        if self._draft is not None and (found or problem):
            found, problem = {}, f"{self._draft.source} takes its place"
        if problem:
            return None, [f"its multi-token prediction head is left out: {problem}"]
        if not found or architecture.draft_head is None:
            return None, []
        decoder = architecture.draft_head.config(config)
        return BoundHead(decoder, folded(decoder, found)), []


def _may_have_head(config: Mapping[str, Any]) -> bool:
    """Whether a checkpoint with this config has the layers of a multi-token prediction head: unless it says that there
    are none."""
    text: Mapping[str, Any] = config.get("text_config") or {}
    said = [one[key] for one in (config, text) for key in _HEAD_LAYERS if key in one]
    return not said or any(said)


def _hidden_scale(
    config: DecoderConfig, folded: Mapping[str, LazyTensor], stored: Mapping[str, LazyTensor]
) -> NDArray[np.float32]:
    """Return the factors of the hidden states before the head that make them the model's own, float32 [e].

    Multipliers were folded into the final norm, and smoothing divides each of its channels by a factor, which is in the
    matrix after it: a projection, or the head.
    """
    size = config.embedding_size or config.hidden_size
    if not config.final_norm:
        return np.ones(size, np.float32)
    scale = np.full(size, 1 / final_multiplier(config))
    if size == config.hidden_size:
        before, after = (
            [one[name].read().astype(np.float64) for name in ("final_norm.weight", "final_norm.bias") if name in one]
            for one in (folded, stored)
        )
        for old, new in reversed([*zip(before, after, strict=True)]):  # the bias, where a weight is zero
            np.divide(old / final_multiplier(config), new, out=scale, where=new != 0)
    return scale.astype(np.float32)


def _context(config: DecoderConfig, wanted: int | None) -> int:
    """The context to export for: the one wanted, or the default.

    Raises:
        UsageError: the model cannot be exported for ``wanted`` positions.
    """
    if wanted is not None and not 1 <= wanted <= config.longest_context:
        raise UsageError(
            f"max_context: this model can be exported for 1 to {config.longest_context} positions, not {wanted}"
        )
    return wanted or config.max_positions
