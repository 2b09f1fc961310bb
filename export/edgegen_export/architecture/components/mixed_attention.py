"""MixedAttention: queries that attend to what another pass over their layer has kept, besides their own keys."""

from dataclasses import dataclass

from edgegen_export.architecture.components.component import Component, Shapes


@dataclass(frozen=True, slots=True)
class MixedAttention(Component):
    """Attention mixed with what the same queries q read of all keys and values of the earlier layer
    ``source``: ``gate · earlier + (1 - gate) · own`` with ``gate = sigmoid(weight · q + bias)`` for each head.

    q is rotated. ``source`` is None in the first pass, which has the tensors and does not mix.
    """

    source: int | None
    heads: int
    head_dim: int

    def numbers(self, hidden: int) -> Shapes:
        return {"mix.weight": (self.heads, self.head_dim), "mix.bias": (self.heads,)}
