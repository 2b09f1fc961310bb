"""MixedAttention: queries that attend to what another pass over their layer has kept, besides their own keys."""

from dataclasses import dataclass, field

from edgegen_export.architecture.components.attention import Attention
from edgegen_export.architecture.components.component import Shapes


@dataclass(frozen=True, slots=True)
class MixedAttention(Attention):
    """Attention mixed with what the same queries q read of all keys and values of the earlier layer
    ``earlier``: ``gate · earlier + (1 - gate) · own`` with ``gate = sigmoid(weight · q + bias)`` for each head.

    q is rotated. ``earlier`` is None in the first pass, which has the tensors and does not mix.
    """

    earlier: int | None = field(kw_only=True)

    @property
    def reads(self) -> int | None:
        return self.earlier

    def numbers(self, hidden: int) -> Shapes:
        return {"mix.weight": (self.heads, self.head_dim), "mix.bias": (self.heads,)}
