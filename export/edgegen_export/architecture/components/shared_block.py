"""Shared block: attention and an MLP whose matrices several layers have in common, with low-rank updates of each use.

Glorioso et al. 2024, arXiv:2411.15242. Nothing of it is smoothed: a factor in a shared matrix would have to be in the
updates of all of its uses.
"""

from dataclasses import dataclass
from typing import ClassVar

from edgegen_export.architecture.components.attention import Attention
from edgegen_export.architecture.components.component import Component, Modules, Norms, Pair, Shapes
from edgegen_export.architecture.components.mlp import MLP
from edgegen_export.architecture.components.norm import Norm


@dataclass(frozen=True, slots=True)
class SharedAttention(Attention):
    """Attention that takes the residual stream and the token embedding side by side, normalized together."""

    sublayer: ClassVar[str | None] = None  # the norm is its own
    inputs_wide: ClassVar[int] = 2

    @property
    def turned(self) -> None:
        return None

    @property
    def smoothing_pairs(self) -> tuple[Pair, ...]:
        return ()

    def norms(self, norm: Norm, hidden: int) -> Norms:
        return {"attn_norm": (norm, (2 * hidden,))}


@dataclass(frozen=True, slots=True)
class SharedMLP(MLP):
    """A gated MLP that takes what attention gives, normalized."""

    sublayer: ClassVar[str | None] = None  # the norm is its own

    @property
    def smoothing_pairs(self) -> tuple[Pair, ...]:
        return ()

    def norms(self, norm: Norm, hidden: int) -> Norms:
        return {"mlp_norm": (norm, (hidden,))}


@dataclass(frozen=True, slots=True)
class SharedUse(Component):
    """Tensors of one use of a shared block alone: a matrix of the block's result, ``linear``, and updates of low
    ``rank``, ``B · A``, of gate and up of ``inner`` channels together, and where ``attends`` says their ``width``, of
    queries, keys and values each."""

    rank: int
    inner: int
    attends: int | None

    @property
    def products(self) -> tuple[Modules, ...]:
        attention = (LOW_ATTENTION, *((name,) for name in HIGH_ATTENTION)) if self.attends else ()
        return (*attention, ("low.mlp_a",), ("low.mlp_b",), ("linear",))

    def matrices(self, hidden: int) -> Shapes:
        low = dict.fromkeys(LOW_ATTENTION, (self.rank, 2 * hidden)) if self.attends else {}
        high = dict.fromkeys(HIGH_ATTENTION, (self.attends, self.rank)) if self.attends else {}
        mlp = {"low.mlp_a": (self.rank, hidden), "low.mlp_b": (2 * self.inner, self.rank)}
        return {**low, **high, **mlp, "linear": (hidden, hidden)}


LOW_ATTENTION: Modules = tuple(f"low.{x}_a" for x in "qkv")
"""The first factors of the updates of queries, keys and values, which take the same input."""
HIGH_ATTENTION: Modules = tuple(f"low.{x}_b" for x in "qkv")
"""The second ones."""
