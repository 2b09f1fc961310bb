"""GatedDeltaNet: linear attention with the gated delta rule."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgegen_export.architecture.components.component import Norms, Shapes, Tensors
from edgegen_export.architecture.components.mixer import Mixer
from edgegen_export.architecture.components.norm import Norm


@dataclass(frozen=True, slots=True)
class GatedDeltaNet(Mixer):
    """Linear attention with the gated delta rule (Yang et al. 2024, arXiv:2412.06464). The state of a value head,
    [key_dim, value_dim], decays by ``exp(-rate · dt)``; what it has for the key is moved towards the value by beta.

    q, k and v pass a convolution over the last ``width`` tokens and SiLU, and each head of q and k is scaled to length
    one. dt is a softplus, beta a sigmoid, each one number per value head. Value heads share the ``key_heads`` in order.
    What q reads passes an RMS norm by head with ``eps``, and is multiplied with ``silu(z)``. ``doubled``: beta is twice
    that sigmoid, so that what the state has for a key may change its sign (Grazzi et al. 2024, arXiv:2411.12537).
    """

    key_heads: int
    value_heads: int
    key_dim: int
    value_dim: int
    width: int
    eps: float
    doubled: bool = False

    name: ClassVar[str] = "delta"
    parts: ClassVar[tuple[str, ...]] = ("q", "k", "v", "z", "dt", "beta")
    trained: ClassVar[tuple[str, ...]] = ("dt_offset", "rate")

    @property
    def keys(self) -> int:
        """Channels of q, and of k."""
        return self.key_heads * self.key_dim

    @property
    def values(self) -> int:
        """Channels of v, and of z."""
        return self.value_heads * self.value_dim

    @property
    def convolved(self) -> int:
        """Channels of the convolution: those of q, k and v."""
        return 2 * self.keys + self.values

    def matrices(self, hidden: int) -> Shapes:
        rows = {"q": self.keys, "k": self.keys, "v": self.values, "z": self.values}
        rows |= {"dt": self.value_heads, "beta": self.value_heads}
        return self.named({**{part: (count, hidden) for part, count in rows.items()}, "out": (hidden, self.values)})

    def kernels(self, hidden: int) -> Shapes:
        return self.named({"kernel": (self.convolved, 1, self.width)})

    def numbers(self, hidden: int) -> Shapes:
        return self.named(dict.fromkeys(self.trained, (self.value_heads,)))

    def norms(self, norm: Norm, hidden: int) -> Norms:
        return {"delta.norm": (Norm("rms", self.eps), (self.value_dim,))}

    def states(self, hidden: int) -> Shapes:
        return {
            "conv": (self.width - 1, self.convolved),
            "delta": (self.value_heads, self.key_dim, self.value_dim),
        }

    def fold(self, layer: str, tensors: Tensors, hidden: int) -> None:
        """The rate instead of its logarithm, a weight of the norm for each channel."""
        rate, weight = f"{layer}delta.rate", f"{layer}delta.norm.weight"
        tensors[rate] = tensors[rate].mapped(np.exp)
        tensors[weight] = tensors[weight].reordered(np.tile(np.arange(self.value_dim), self.value_heads))
