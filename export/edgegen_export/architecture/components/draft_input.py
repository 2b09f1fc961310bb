"""DraftInput, AssistantInput, EagleInput: what the layers of heads that propose tokens take."""

from dataclasses import dataclass
from typing import ClassVar

from edgegen_export.architecture.components.attention import Attention
from edgegen_export.architecture.components.component import Component, Modules, Norms, Shapes
from edgegen_export.architecture.components.norm import Norm


@dataclass(frozen=True, slots=True)
class DraftInput(Component):
    """A token's embedding e, and the hidden state h of the position before it: ``x = linear(concat(norm(e), norm(h)))``
    (DeepSeek-AI 2024, arXiv:2412.19437, section 2.2), or h first.

    ``normed_output``: whether the hidden states that it proposes a second token from are those after its final norm.
    """

    hidden_first: bool = False
    normed_output: bool = True

    def around(self, hidden: int, layers: int) -> Shapes:
        return {"draft_in": (hidden, 2 * hidden)}

    @property
    def products_around(self) -> tuple[Modules, ...]:
        return (("draft_in",),)

    def norms_around(self, norm: Norm, hidden: int) -> Norms:
        return dict.fromkeys(("draft_embed_norm", "draft_hidden_norm"), (norm, (hidden,)))


@dataclass(frozen=True, slots=True)
class AssistantInput(Component):
    """``x = linear(concat(e, h))`` of the model's embedding e of a token and its hidden state h before it, both of
    ``backbone`` numbers; ``linear`` of the hidden state after the last norm takes the place of the next h.

    ``clusters``: into how many, of one size, the vocabulary is parted; of those ``chosen`` whose centroids are nearest,
    tokens have logits; 0 where all have.
    """

    backbone: int
    clusters: int = 0
    chosen: int = 0

    def around(self, hidden: int, layers: int) -> Shapes:
        found: Shapes = {"draft_in": (hidden, 2 * self.backbone), "draft_out": (self.backbone, hidden)}
        return {**found, **({"centroids": (self.clusters, hidden)} if self.clusters else {})}

    @property
    def products_around(self) -> tuple[Modules, ...]:
        return ("draft_in",), ("draft_out",), *((("centroids",),) if self.clusters else ())


@dataclass(frozen=True, slots=True)
class EagleAttention(Attention):
    """Attention that takes a token's embedding and the hidden state before it side by side, each normalized."""

    inputs_wide: ClassVar[int] = 2


@dataclass(frozen=True, slots=True)
class EagleInput(Component):
    """``h = linear(concat(states))`` of the model's residual stream before each of its ``layers``, and then the draft's
    own hidden state; it has logits of ``rows`` tokens.

    ``normed_residual``: whether h is normalized before the layer's residual, too.
    """

    layers: tuple[int, ...]
    rows: int
    normed_residual: bool = False

    def around(self, hidden: int, layers: int) -> Shapes:
        return {"draft_fuse": (hidden, len(self.layers) * hidden), "draft_head": (self.rows, hidden)}

    @property
    def products_around(self) -> tuple[Modules, ...]:
        return (("draft_fuse",),)

    def norms_around(self, norm: Norm, hidden: int) -> Norms:
        return {"draft_hidden_norm": (norm, (hidden,))}
