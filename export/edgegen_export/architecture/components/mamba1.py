"""Mamba1: a state space mixer whose every channel decays by itself. GatedMemory: a gate of what one remembered."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgegen_export.architecture.components.component import (
    LEAST_ONNXRUNTIME,
    SECOND_STREAM,
    Modules,
    Norms,
    Pair,
    Shapes,
    Tensors,
)
from edgegen_export.architecture.components.mixer import Mixer
from edgegen_export.architecture.components.norm import Norm


@dataclass(frozen=True, slots=True)
class Mamba1(Mixer):
    """A state space mixer (Gu and Dao 2023, arXiv:2312.00752): ``h = exp(-rate · dt) · h + dt · B ⊗ x``, ``y = C · h +
    skip · x`` in each of ``inner`` channels, whose state h has ``state`` numbers, each with a rate of its own.

    x passes a convolution over the last ``width`` tokens and SiLU. Of that B, C and ``rank`` numbers are projected, and
    of these dt, a softplus, one number per channel. ``norm``: of those numbers, B and C, None without one. What leaves
    is ``y · silu(z)``. ``remembered``: later layers read y, too.
    """

    inner: int
    state: int
    rank: int
    width: int
    norm: Norm | None = None
    remembered: bool = False

    name: ClassVar[str] = "mamba"
    parts: ClassVar[tuple[str, ...]] = ("x", "z")
    operators_since: ClassVar[str] = LEAST_ONNXRUNTIME
    selecting: ClassVar[tuple[str, ...]] = ("dt_in", "b", "c")
    """The matrices that take what the convolution gives."""

    @property
    def selects(self) -> Modules:
        """The modules of ``selecting``."""
        return tuple(f"{self.name}.{part}" for part in self.selecting)

    @property
    def products(self) -> tuple[Modules, ...]:
        return self.inputs, self.selects, (f"{self.name}.dt",), self.outputs

    @property
    def smoothing_pairs(self) -> tuple[Pair, ...]:
        producer = "dt_in" if self.norm is None else "dt_in_norm"
        return (Pair(f"{self.name}.{producer}", (f"{self.name}.dt",)),)

    def matrices(self, hidden: int) -> Shapes:
        return self.named(
            {
                "x": (self.inner, hidden),
                "z": (self.inner, hidden),
                "dt_in": (self.rank, self.inner),
                "b": (self.state, self.inner),
                "c": (self.state, self.inner),
                "dt": (self.inner, self.rank),
                "out": (hidden, self.inner),
            }
        )

    def kernels(self, hidden: int) -> Shapes:
        return self.named({"kernel": (self.inner, 1, self.width)})

    def numbers(self, hidden: int) -> Shapes:
        return self.named({"rate": (self.inner, self.state), "skip": (self.inner,)})

    def norms(self, norm: Norm, hidden: int) -> Norms:
        sizes = {"dt_in": self.rank, "b": self.state, "c": self.state} if self.norm else {}
        return {f"{self.name}.{part}_norm": (self.norm, (size,)) for part, size in sizes.items() if self.norm}

    def carries(self, hidden: int) -> Mapping[str, int]:
        return {SECOND_STREAM: self.inner} if self.remembered else {}

    def states(self, hidden: int) -> Shapes:
        return {"conv": (self.width - 1, self.inner), "ssm": (self.state, self.inner)}

    def fold(self, layer: str, tensors: Tensors, hidden: int) -> None:
        """The rate instead of its logarithm, negated, by number and channel."""
        rate = f"{layer}{self.name}.rate"
        tensors[rate] = tensors[rate].mapped(lambda logarithms: -np.exp(logarithms)).transposed()


@dataclass(frozen=True, slots=True)
class GatedMemory(Mixer):
    """A gated memory unit (Ren et al. 2025, arXiv:2507.06607): ``out(silu(gate(x)) · memory)``, where the memory of
    ``inner`` channels is what the earlier layer whose :class:`Mamba1` is ``remembered`` made of the same token."""

    inner: int

    name: ClassVar[str] = "memory"
    parts: ClassVar[tuple[str, ...]] = ("gate",)
    smoothed: ClassVar[None] = None
    operators_since: ClassVar[str] = LEAST_ONNXRUNTIME

    def matrices(self, hidden: int) -> Shapes:
        return self.named({"gate": (self.inner, hidden), "out": (hidden, self.inner)})
