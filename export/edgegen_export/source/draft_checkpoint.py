"""open_draft(): a checkpoint beside a model's that proposes its tokens, whatever kind of draft it is."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from edgegen.bundle.manifest import Quantization
from edgegen.errors import UnsupportedModelError
from edgegen_export.architecture.config import DecoderConfig
from edgegen_export.checkpoint import Checkpoint
from edgegen_export.families.drafts.eagle3 import EAGLE3, SPECULATORS
from edgegen_export.families.drafts.gemma4_assistant import ASSISTANTS
from edgegen_export.files.disk import refuse_download
from edgegen_export.files.progress import ExportProgress
from edgegen_export.source.assistant import AssistantCheckpoint
from edgegen_export.source.eagle import EagleCheckpoint
from edgegen_export.source.model_source import DraftGraph, HiddenGraphs


class BoundDraft(Protocol):
    """A draft bound to its model."""

    def hidden_graphs(self, model: DecoderConfig, scale: NDArray[np.float32]) -> HiddenGraphs:
        """The model's prefill graphs, which make the draft's inputs; ``scale``: what the hidden states before the
        head are multiplied with to be the model's own."""
        ...

    def draft_graph(self, recipe: Quantization) -> DraftGraph:
        """Its graph, with its weights stored by ``recipe``."""
        ...


DraftCheckpoint = EagleCheckpoint | AssistantCheckpoint
"""A draft in a checkpoint of its own."""


def open_draft(source: str, progress: ExportProgress) -> DraftCheckpoint:
    """Open a folder or a hub id.

    Raises:
        CheckpointError: it cannot be read.
        UnsupportedModelError: it is no draft, or one that is not read.
        ExportError: the disk has no room for its download.
    """
    progress.stage(f"opening {source}")
    found = Checkpoint.open(
        source, progress=progress.stage, check_config=_refuse_others(source), check_download=refuse_download
    )
    kind = AssistantCheckpoint if found.config.get("model_type") in ASSISTANTS else EagleCheckpoint
    return kind.of(source, found, progress)


def _refuse_others(source: str) -> Callable[[Mapping[str, Any]], None]:
    """Refuses checkpoints by their config that are no such draft."""

    def check(config: Mapping[str, Any]) -> None:
        kind, classes = config.get("model_type"), cast("list[object]", config.get("architectures") or [])
        if kind in ASSISTANTS or config.get(SPECULATORS) == "eagle3":
            return
        if kind != "llama" or not set(classes) & set(EAGLE3.classes):
            named = ", ".join(map(str, classes)) or str(kind)
            raise UnsupportedModelError(
                f"{source} is a {named}: draft heads are read of EAGLE-3 drafts of Llama's kind "
                f"({', '.join(EAGLE3.classes)}), and of Gemma 4's assistants ({', '.join(ASSISTANTS)})"
            )

    return check
