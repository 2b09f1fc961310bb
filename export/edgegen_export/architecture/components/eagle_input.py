"""EagleInput: what the layer of an EAGLE-3 draft takes, and gives its logits by (Li et al. 2025, arXiv:2503.01840)."""

from dataclasses import dataclass
from typing import ClassVar

from edgegen_export.architecture.components.attention import Attention
from edgegen_export.architecture.components.component import Component, Modules, Norms, Shapes
from edgegen_export.architecture.components.norm import Norm


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
