"""EagleCheckpoint: an EAGLE-3 draft in a checkpoint of its own, which proposes tokens of a model's hidden states."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.manifest import DRAFT_STATES, HiddenStates, MatrixFormat, Quantization
from edgegen.errors import TensorError, UnsupportedModelError
from edgegen_export.architecture.binding import bind
from edgegen_export.architecture.components.draft_input import EagleInput
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.architecture.folding import folded
from edgegen_export.architecture.tensors import matrices_around
from edgegen_export.checkpoint import Checkpoint, unpacked
from edgegen_export.families.drafts.eagle3 import EAGLE3, EagleDraft, read_eagle3
from edgegen_export.files.progress import ExportProgress
from edgegen_export.graph.decoder import HIDDEN_STATES, build_with_fused, kv_spec, rotary_tables
from edgegen_export.graph.eagle_head import build_eagle_head, eagle_name
from edgegen_export.graph.fused import fused_name
from edgegen_export.quantize.recipe import EIGHT_BITS
from edgegen_export.source.model_source import DraftGraph, HiddenGraphs
from edgegen_export.tensors.lazy import LazyTensor


@dataclass(frozen=True, slots=True, eq=False)
class BoundEagle:
    """A draft bound to its model: a decoder of one layer, its ``tensors`` by our names of such a decoder, the embedding
    being the model's, and the ids of its head's rows."""

    config: DecoderConfig
    tensors: Mapping[str, LazyTensor]
    ids: NDArray[np.int32]

    def hidden_graphs(self, model: DecoderConfig, scale: NDArray[np.float32]) -> HiddenGraphs:
        """The model's prefill graphs, which make the draft's inputs; ``scale``: of hidden states after all layers."""
        taken, fuse = self.config.only(EagleInput).layers, eagle_name("draft_fuse")
        return HiddenGraphs(
            HiddenStates(DRAFT_STATES, self.config.hidden_size),
            {},
            lambda kv, params: build_with_fused(model, params, kv, taken, fuse),
        )

    def draft_graph(self, recipe: Quantization) -> DraftGraph:
        """Its graph, with its weights stored by ``recipe``."""
        config, own, ids, kv = self.config, self.config.only(EagleInput), self.ids, kv_spec(self.config)
        exceptions = dict[str, MatrixFormat]()
        if 0 < recipe.linear.bits < EIGHT_BITS.bits:
            exceptions = {eagle_name(fused_name(one)): EIGHT_BITS for one in matrices_around(config)}
        return DraftGraph(
            output=HiddenStates(HIDDEN_STATES, config.hidden_size),
            kv=kv,
            rotary=tuple(rotary_tables(config).values()),
            tensors={eagle_name(name): tensor for name, tensor in self.tensors.items() if name != "embed.weight"},
            exceptions=exceptions,
            build=lambda params: build_eagle_head(config, own, params, kv, ids),
        )


@dataclass(frozen=True, slots=True, eq=False)
class EagleCheckpoint:
    """The checkpoint ``source`` of a draft, opened, and what its ``config.json`` describes."""

    source: str
    draft: EagleDraft
    tensors: Mapping[str, LazyTensor]

    @classmethod
    def of(cls, source: str, found: Checkpoint, progress: ExportProgress) -> "EagleCheckpoint":
        """Read the checkpoint ``found`` under the name ``source``.

        Raises:
            CheckpointError: it cannot be read.
            UnsupportedModelError: it is a draft that is not read.
        """
        draft = read_eagle3(found.config)
        plain = unpacked(found, EAGLE3.base_names(draft.decoder), progress.warn)
        return cls(source, draft, plain.tensors)

    def refuse_mismatch(self, model: DecoderConfig, config: Mapping[str, Any]) -> None:
        """Refuse a draft that is not of such a model, whose ``config.json`` is ``config``.

        Raises:
            UnsupportedModelError: sizes differ, or the model is of a kind that no draft is read for.
        """
        draft, classes = self.draft.decoder, cast("list[object]", config.get("architectures") or [])
        if self.draft.verifier_classes and classes and not set(classes) & set(self.draft.verifier_classes):
            raise UnsupportedModelError(
                f"{self.source} is a draft of {self.draft.verifier}, a {' / '.join(self.draft.verifier_classes)}, and "
                f"the model is a {' / '.join(map(str, classes))}"
            )
        for what, ours, theirs in (
            ("hidden_size", draft.hidden_size, model.hidden_size),
            ("vocab_size", draft.vocab_size, model.vocab_size),
        ):
            if ours != theirs:
                raise UnsupportedModelError(
                    f"{self.source} is not a draft of this model: its {what} is {ours}, and the model's {theirs}"
                )
        if model.num_layers < 4:
            raise UnsupportedModelError(
                f"{self.source} takes hidden states of three layers, and the model has {model.num_layers}"
            )
        if not self.draft.counts_as(model.num_layers):
            raise UnsupportedModelError(
                f"{self.source} takes the hidden states of other layers than the usual three, and programs do not "
                "agree on how they are counted: it is not read"
            )
        embeds = (model.embedding_multiplier, model.embedding_size or model.hidden_size, model.embedding_norm)
        biased = any(one.alibi for one in model.attentions.values())
        if embeds != (1.0, model.hidden_size, False) or model.extras or biased or model.ternary:
            raise UnsupportedModelError(
                f"{self.source}: drafts are read for models whose token embeddings are used as they are stored"
            )

    def decoder(self, model: DecoderConfig, whole: DecoderConfig) -> DecoderConfig:
        """The draft of ``model`` as a decoder; ``whole``: the model as its config describes it."""
        return self.draft.of(model.num_layers)

    def bound(self, model: DecoderConfig, embedding: LazyTensor, whole: DecoderConfig) -> BoundEagle:
        """The draft of ``model``, which has this ``embedding``; ``whole``: the model as its config describes it.

        Raises:
            TensorError: its tensors do not fit its config, or the model.
        """
        config = _within(self.draft.of(model.num_layers), model)
        tensors = dict(self.tensors)
        for name in ("embed_tokens.weight", "model.embed_tokens.weight"):
            if name in tensors and not tensors.pop(name).equals(embedding):
                raise TensorError(f"{self.source}: {name} is not the model's own, and would be stored beside it")
        ids = self._ids(model.vocab_size)
        found = bind(EAGLE3, config, {**tensors, "embed_tokens.weight": embedding})
        return BoundEagle(config, folded(config, found), ids)

    def _ids(self, vocab_size: int) -> NDArray[np.int32]:
        """The ids of the rows of the draft's head, which ``d2t`` has relative to the rows."""
        rows, found = self.draft.rows, self.tensors.get("d2t")
        if found is None:
            if rows != vocab_size:
                raise TensorError(
                    f"{self.source}: d2t: missing, which says the ids of its {rows} tokens of the model's {vocab_size}"
                )
            return np.arange(rows, dtype=np.int32)
        if found.shape != (rows,):
            raise TensorError(f"{self.source}: d2t: shape {list(found.shape)}, but the config asks for {[rows]}")
        ids = np.arange(rows) + np.rint(found.read()).astype(np.int64)
        if ids.min() < 0 or ids.max() >= vocab_size or len(np.unique(ids)) < rows:
            raise TensorError(f"{self.source}: d2t: ids of the model expected, each once")
        return ids.astype(np.int32)


def _within(config: DecoderConfig, model: DecoderConfig) -> DecoderConfig:
    """``config`` for the positions of ``model``, whatever the draft was trained with: it proposes, and no more."""
    return replace(config, max_positions=model.max_positions, longest_context=model.longest_context)
