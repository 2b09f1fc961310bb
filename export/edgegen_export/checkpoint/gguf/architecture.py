"""GgufArchitecture: one architecture of GGUF files as data, the original's words beside the file's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from edgegen_export.checkpoint.gguf.config_rules import Rule
from edgegen_export.checkpoint.gguf.layouts import Joined, Layout

Modules = Mapping[str, "str | Layout"]
Vectors = Mapping[str, tuple[str, tuple[int, ...]]]

OF_MLP = ("gate_proj", "up_proj", "down_proj")
NUMBERED = ("w1", "w3", "w2")
"""Names in originals of the matrices of an MLP with a gate: of the gate, up and down."""
TOP: Modules = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
PREFIX = "model.layers.{i}."
OF_STREAM = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
}
SIZES = {
    **OF_STREAM,
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
}
LAYER_NORM_EPS, RMS_NORM_EPS = "attention.layer_norm_epsilon", "attention.layer_norm_rms_epsilon"


@dataclass(frozen=True, slots=True)
class DraftLayer:
    """The first layer after the last one, which proposes further tokens, as the original has it.

    ``modules``: what that layer has beside those of others. ``prefix``: what the names of its own tensors begin with,
    where that is not what those of other layers do.
    """

    modules: Modules
    prefix: str = ""


@dataclass(frozen=True, slots=True)
class GgufArchitecture:
    """``model_type`` of the original's ``config.json``, and how the rest of it is read.

    ``integers`` and ``reals``: metadata keys, without the architecture's prefix, → config keys; all are required.
    ``layer``: modules below ``blk.{i}.``, without ``.weight`` or ``.bias``, → the original's, which begin with
    ``prefix``; ``top``: those outside of layers. ``{i}`` stands for the layer.
    ``vectors``: metadata keys of a number for each layer → the original's tensor of one number, and its shape.
    ``joined``: tensors of the original that the file has in parts, which ``layer`` names.
    ``stacks``: modules of the original, ``{stack}`` in ``prefix``, that have the file's layers one after the other, as
    many each as its config says under ``num_layers_per_stack``.
    ``variant``: another description, for files that have the tensor named first. ``draft``: the original's
    multi-token prediction head; None where none is known.
    """

    model_type: str
    integers: Mapping[str, str]
    reals: Mapping[str, str]
    layer: Modules
    rules: tuple[Rule, ...]
    top: Modules = field(default_factory=lambda: TOP)
    prefix: str = PREFIX
    constants: Mapping[str, Any] = field(default_factory=dict[str, Any])
    vectors: Vectors = field(default_factory=dict[str, tuple[str, tuple[int, ...]]])
    joined: tuple[Joined, ...] = ()
    stacks: tuple[str, ...] = ()
    variant: tuple[str, GgufArchitecture] | None = None
    draft: DraftLayer | None = None

    @property
    def modules(self) -> Modules:
        """All modules of the file, and the original's."""
        return {**self.top, **of_layer(self.layer, self.prefix)}


def gated(module: str, names: Sequence[str] = OF_MLP, *, kind: str = "") -> dict[str, str]:
    """The matrices of an MLP with a gate, the original's ``names`` of them, and the file's, which end with ``kind``."""
    return {f"ffn_{x}{kind}": f"{module}.{name}" for x, name in zip(("gate", "up", "down"), names, strict=True)}


def of_layer(layer: Modules, prefix: str = PREFIX) -> Modules:
    """``layer`` below ``blk.{i}.`` on our side and ``prefix`` on the original's."""
    return {f"blk.{{i}}.{ours}": _below(prefix, theirs) for ours, theirs in layer.items()}


def _below(prefix: str, theirs: str | Layout) -> str | Layout:
    return prefix + theirs if isinstance(theirs, str) else replace(theirs, theirs=prefix + theirs.theirs)
