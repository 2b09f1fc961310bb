"""Normalized: attention, MLP and residuals of nGPT, whose hidden states have the length 1.

Loshchilov et al. 2024, arXiv:2410.01131. Trained scales are stored times a factor, which the config says.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from edgegen_export.architecture.components.attention import Attention
from edgegen_export.architecture.components.component import Component, Shapes, Tensors
from edgegen_export.architecture.components.mlp import MLP
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.tensors.lazy import LazyTensor

_EPS = 1e-6


def unit_norm(size: int) -> Norm:
    """``x / sqrt(sum(x²) + eps)`` of ``size`` numbers."""
    return Norm("rms", _EPS / size, weight=False, factor=size**-0.5)


@dataclass(frozen=True, slots=True)
class NormalizedAttention(Attention):
    """Attention whose queries, after rotation, are multiplied with the square of a trained scale, as the gate is.

    ``query_factor``, ``gate_factor``: of the two scales, one number for each channel.
    """

    query_factor: float = field(kw_only=True)
    gate_factor: float = field(kw_only=True)

    query_factors: ClassVar[str | None] = "attn.query_scale"

    def numbers(self, hidden: int) -> Shapes:
        return {"attn.query_scale": (self.width,), "attn.gate_scale": (self.width,)}

    def fold(self, layer: str, tensors: Tensors, hidden: int) -> None:
        """The scales as they are multiplied; the gate's in its matrix."""
        query, gate = f"{layer}attn.query_scale", f"{layer}attn.gate_scale"
        tensors[query] = LazyTensor.from_array(_square(tensors[query], self.query_factor))
        _scale_rows(tensors, f"{layer}attn.gate", _square(tensors.pop(gate), self.gate_factor))


@dataclass(frozen=True, slots=True)
class NormalizedMLP(MLP):
    """A gated MLP with trained scales of gate and up, one number for each channel, times ``factor``."""

    factor: float = field(kw_only=True)

    def numbers(self, hidden: int) -> Shapes:
        return {f"mlp.{name}_scale": (self.width,) for name in ("gate", "up")}

    def fold(self, layer: str, tensors: Tensors, hidden: int) -> None:
        """The scales in the matrices."""
        for name in ("gate", "up"):
            scale = tensors.pop(f"{layer}mlp.{name}_scale").read()
            _scale_rows(tensors, f"{layer}mlp.{name}", scale * np.float32(self.factor))


@dataclass(frozen=True, slots=True)
class Interpolation(Component):
    """Approach to the result of a sublayer, ``x += |rate| · (norm(f(x)) - x)``, at trained rates, one number for each
    channel, times ``factor``."""

    factor: float

    def numbers(self, hidden: int) -> Shapes:
        return {"attn_rate": (hidden,), "mlp_rate": (hidden,)}

    def fold(self, layer: str, tensors: Tensors, hidden: int) -> None:
        """The rates as they are multiplied."""
        for name in self.numbers(hidden):
            rate = tensors[f"{layer}{name}"].read() * np.float32(self.factor)
            tensors[f"{layer}{name}"] = LazyTensor.from_array(np.abs(rate))


@dataclass(frozen=True, slots=True)
class HeadScale(Component):
    """The logit of each of ``vocab`` tokens is multiplied with a trained scale, times ``factor``."""

    factor: float
    vocab: int

    def around(self, hidden: int, layers: int) -> Shapes:
        return {"head_scale": (self.vocab,)}

    def fold_around(self, tensors: Tensors) -> None:
        """The scale of logits in the head."""
        scale = tensors.pop("head_scale.weight").read()
        _scale_rows(tensors, "head", scale * np.float32(self.factor))


def _square(scale: LazyTensor, factor: float) -> NDArray[np.float32]:
    return np.square(scale.read() * np.float32(factor))


def _scale_rows(tensors: Tensors, module: str, factors: NDArray[np.float32]) -> None:
    for name in (f"{module}.weight", f"{module}.bias"):
        if name in tensors:
            tensors[name] = tensors[name].scaled(factors)
