"""Mamba2: a state space mixer."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgegen_export.architecture.components.component import Norms, Pair, Shapes, Tensors
from edgegen_export.architecture.components.mixer import Mixer
from edgegen_export.architecture.components.norm import Norm


@dataclass(frozen=True, slots=True)
class Mamba2(Mixer):
    """A state space mixer (Dao and Gu 2024, arXiv:2405.21060): ``h = exp(-rate · dt) · h + dt · B ⊗ x``, ``y = C · h +
    skip · x`` in each of ``heads`` heads of ``head_dim`` channels, whose state h is [state, head_dim].

    x, B, C pass a convolution over the last ``width`` tokens and SiLU; dt is a softplus, one number per head. Heads
    share B and C in ``groups``. ``eps``: of the RMS norm of ``y · silu(z)`` in as many groups, None without one;
    ``gate_last``: of y instead, then times ``silu(z)``. ``least_step``: what dt is at least.
    """

    heads: int
    head_dim: int
    groups: int
    state: int
    width: int
    eps: float | None
    gate_last: bool = False
    least_step: float = 0.0

    name: ClassVar[str] = "mamba"
    parts: ClassVar[tuple[str, ...]] = ("z", "x", "b", "c", "dt")
    trained: ClassVar[tuple[str, ...]] = ("dt_offset", "rate", "skip")

    @property
    def inner(self) -> int:
        """Channels of x, y and z."""
        return self.heads * self.head_dim

    @property
    def convolved(self) -> int:
        """Channels of the convolution: those of x, B and C."""
        return self.inner + 2 * self.groups * self.state

    @property
    def smoothing_pairs(self) -> tuple[Pair, ...]:
        return () if self.eps is None else (Pair("mamba.norm", self.outputs),)

    def matrices(self, hidden: int) -> Shapes:
        shared = self.groups * self.state
        rows = {"z": self.inner, "x": self.inner, "b": shared, "c": shared, "dt": self.heads}
        return self.named({**{part: (count, hidden) for part, count in rows.items()}, "out": (hidden, self.inner)})

    def kernels(self, hidden: int) -> Shapes:
        return self.named({"kernel": (self.convolved, 1, self.width)})

    def numbers(self, hidden: int) -> Shapes:
        return self.named(dict.fromkeys(self.trained, (self.heads,)))

    def norms(self, norm: Norm, hidden: int) -> Norms:
        return {} if self.eps is None else {"mamba.norm": (Norm("rms", self.eps), (self.inner,))}

    def states(self, hidden: int) -> Shapes:
        return {"conv": (self.width - 1, self.convolved), "ssm": (self.heads, self.state, self.head_dim)}

    def fold(self, layer: str, tensors: Tensors, hidden: int) -> None:
        """The rate instead of its logarithm, a skip for each channel."""
        rate, skip = f"{layer}mamba.rate", f"{layer}mamba.skip"
        tensors[rate] = tensors[rate].mapped(np.exp)
        tensors[skip] = tensors[skip].reordered(np.repeat(np.arange(self.heads), self.head_dim))
