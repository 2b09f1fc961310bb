"""SublayerConvs: convolutions over the last tokens of what attention and MLP give."""

from dataclasses import dataclass

import numpy as np

from edgegen_export.architecture.components.component import Component, Shapes, Tensors
from edgegen_export.tensors.lazy import LazyTensor

ATTENTION_CONV, MLP_CONV = "attn_conv", "mlp_conv"
_FACTOR = "mlp_conv.factor"


@dataclass(frozen=True, slots=True)
class SublayerConvs(Component):
    """Convolutions of the results of attention and of the MLP, ``x + conv(x)`` of the last ``width`` tokens, each
    channel by itself, before they are added to the residual stream.

    ``even``: divided by the root of the number of terms, ``width + 1``. ``factor``: the MLP's is multiplied with a
    trained number.
    """

    width: int
    even: bool = False
    factor: bool = False

    def kernels(self, hidden: int) -> Shapes:
        return dict.fromkeys((ATTENTION_CONV, MLP_CONV), (hidden, 1, self.width))

    def numbers(self, hidden: int) -> Shapes:
        return {_FACTOR: (1,)} if self.factor else {}

    def states(self, hidden: int) -> Shapes:
        return dict.fromkeys((ATTENTION_CONV, MLP_CONV), (self.width - 1, hidden))

    def fold(self, layer: str, tensors: Tensors, hidden: int) -> None:
        """The input itself in the kernels, and the factor."""
        factor = float(tensors.pop(f"{layer}{_FACTOR}").read()[0]) if self.factor else 1.0
        for name, own in ((ATTENTION_CONV, 1.0), (MLP_CONV, factor)):
            weight = f"{layer}{name}.weight"
            tensors[weight] = with_input(tensors[weight], own, even=self.even)


def with_input(kernel: LazyTensor, factor: float = 1.0, *, even: bool) -> LazyTensor:
    """``kernel`` [channels, 1, width] of ``x + conv(x)``, times ``factor``; ``even``: divided by the root of the number
    of terms."""
    taps = kernel.read().copy()
    taps[..., -1] += 1
    root = np.sqrt(taps.shape[-1] + 1) if even else 1.0
    return LazyTensor.from_array((taps * np.float32(factor / root)).astype(np.float32))
