"""KimiDeltaAttention: linear attention with the delta rule, every channel of whose keys decays by itself."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from edgegen_export.architecture.components.component import Modules, Norms, Pair, Shapes, Tensors
from edgegen_export.architecture.components.mixer import Mixer
from edgegen_export.architecture.components.norm import Norm


@dataclass(frozen=True, slots=True)
class KimiDeltaAttention(Mixer):
    """A gated delta net whose state decays by channel (Kimi Team 2025, arXiv:2510.26692). The state of a head,
    [head_dim, head_dim], decays by ``exp(-rate · softplus(dt))`` in each channel of the key, or by ``exp(bound ·
    sigmoid(rate · dt))``, which has a ``bound`` below zero; what it has for the key is moved towards the value by beta.

    q, k and v pass a convolution over the last ``width`` tokens and SiLU, and each head of q and k is scaled to length
    one. beta is a sigmoid, one number per head. What q reads passes an RMS norm by head with ``eps``, and is multiplied
    with ``sigmoid(z)``. dt and z are projected of ``rank`` numbers each, ``dt_in`` and ``z_in``, or without a rank of
    what the layer takes.
    """

    heads: int
    head_dim: int
    width: int
    eps: float
    rank: int | None = None
    bound: float | None = None

    name: ClassVar[str] = "delta"
    trained: ClassVar[tuple[str, ...]] = ("dt_offset", "rate")
    low: ClassVar[tuple[str, ...]] = ("dt", "z")
    """The matrices that may be of a low rank."""

    @property
    def channels(self) -> int:
        """Of q, of k, of v, and of what they make."""
        return self.heads * self.head_dim

    @property
    def sizes(self) -> Mapping[str, int]:
        """The channels of what is projected of the layer's input, in the order in which the graph fuses it."""
        low = dict.fromkeys(self.low, self.channels)
        if self.rank is not None:
            low = {f"{part}_in": self.rank for part in self.low}
        return {**dict.fromkeys("qkv", self.channels), **low, "beta": self.heads}

    @property
    def inputs(self) -> Modules:
        return tuple(f"{self.name}.{part}" for part in self.sizes)

    @property
    def products(self) -> tuple[Modules, ...]:
        low = () if self.rank is None else tuple((f"{self.name}.{part}",) for part in self.low)
        return self.inputs, *low, self.outputs

    @property
    def smoothing_pairs(self) -> tuple[Pair, ...]:
        low = () if self.rank is None else (f"{self.name}.{part}" for part in self.low)
        norm = Pair(f"{self.name}.norm", self.outputs)
        return norm, *(Pair(f"{module}_in", (module,)) for module in low)

    def matrices(self, hidden: int) -> Shapes:
        taking = {part: (rows, hidden) for part, rows in self.sizes.items()}
        low = {} if self.rank is None else dict.fromkeys(self.low, (self.channels, self.rank))
        return self.named({**taking, **low, "out": (hidden, self.channels)})

    def kernels(self, hidden: int) -> Shapes:
        return self.named({"kernel": (3 * self.channels, 1, self.width)})

    def numbers(self, hidden: int) -> Shapes:
        return self.named({"dt_offset": (self.channels,), "rate": (self.heads,)})

    def norms(self, norm: Norm, hidden: int) -> Norms:
        return {f"{self.name}.norm": (Norm("rms", self.eps), (self.head_dim,))}

    def states(self, hidden: int) -> Shapes:
        return {
            "conv": (self.width - 1, 3 * self.channels),
            "delta": (self.heads, self.head_dim, self.head_dim),
        }

    def fold(self, layer: str, tensors: Tensors, hidden: int) -> None:
        """The rate of each channel instead of the logarithm of a head's, a weight of the norm for each channel."""
        rate, weight = f"{layer}{self.name}.rate", f"{layer}{self.name}.norm.weight"
        tensors[rate] = tensors[rate].mapped(np.exp).reordered(np.repeat(np.arange(self.heads), self.head_dim))
        tensors[weight] = tensors[weight].reordered(np.tile(np.arange(self.head_dim), self.heads))
