"""MLP: plain or gated, and the activations of all MLPs."""

from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from edgegen_export.architecture.components.component import Component, Modules, Norms, Pair, Shapes, Tensors
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.tensors.lazy import LazyTensor

Activation = Literal["gelu", "gelu_tanh", "relu", "relu2", "silu", "xielu"]
"""``relu2``: relu(x)². ``xielu`` has trained numbers in every layer (Huang and Schlag 2024, arXiv:2411.13010)."""


@dataclass(frozen=True, slots=True)
class MLP(Component):
    """``down(activation(up(x)))`` with ``width`` numbers between, or ``down(activation(gate(x)) · up(x))`` if
    ``gated``.

    ``cutoff``: of what the gate projection gives, ``relu(x - (mean + cutoff · deviation))`` is activated, mean and
    deviation those of a token's numbers. ``sub_norm``: what ``down`` takes is normalized first.
    """

    width: int
    activation: Activation
    gated: bool = False
    cutoff: float | None = None
    sub_norm: Norm | None = None

    sublayer: ClassVar[str | None] = "mlp"

    @property
    def inputs(self) -> Modules:
        return mlp_inputs("mlp", gated=self.gated)

    @property
    def outputs(self) -> Modules:
        return ("mlp.down",)

    @property
    def smoothing_pairs(self) -> tuple[Pair, ...]:
        if self.sub_norm:
            return (Pair("mlp.sub_norm", self.outputs),)
        exact = self.gated or self.activation == "relu"  # relu(x / s) = relu(x) / s
        return (Pair("mlp.up", self.outputs),) if exact else ()

    def matrices(self, hidden: int) -> Shapes:
        return mlp_matrices("mlp", hidden, self.width, gated=self.gated)

    def norms(self, norm: Norm, hidden: int) -> Norms:
        return {"mlp.sub_norm": (self.sub_norm, (self.width,))} if self.sub_norm else {}

    def numbers(self, hidden: int) -> Shapes:
        return dict(zip(XIELU, ((1,), (1,), ()), strict=True)) if self.activation == "xielu" else {}

    def fold(self, layer: str, tensors: Tensors, hidden: int) -> None:
        """The numbers of xIELU as they are multiplied: after the softplus that keeps them positive."""
        if self.activation != "xielu":
            return
        positive, negative, linear = (f"{layer}{name}" for name in XIELU)
        beta = tensors[linear].read().reshape(1)
        tensors[linear] = LazyTensor.from_array(beta)
        tensors[positive] = tensors[positive].mapped(_softplus)
        tensors[negative] = LazyTensor.from_array(_softplus(tensors[negative].read()) + beta)


XIELU = ("mlp.act.alpha_p", "mlp.act.alpha_n", "mlp.act.beta")
"""The trained numbers of an xIELU: for positive inputs, for negative ones, and of the linear part."""


def mlp_inputs(module: str, *, gated: bool) -> Modules:
    """The matrices of the MLP ``module`` that take its input."""
    return (f"{module}.gate", f"{module}.up") if gated else (f"{module}.up",)


def mlp_matrices(module: str, hidden: int, width: int, *, gated: bool, count: int = 1) -> Shapes:
    """The matrices of ``count`` MLPs, those of all concatenated."""
    taking = dict.fromkeys(mlp_inputs(module, gated=gated), (count * width, hidden))
    return {**taking, f"{module}.down": (count * hidden, width)}


def _softplus(x: NDArray[np.float32]) -> NDArray[np.float32]:
    return np.logaddexp(x, np.float32(0))
