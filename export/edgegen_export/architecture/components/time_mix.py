"""TimeMix: RWKV-7's recurrence, a delta rule whose removal, decay and writing each have a vector of their own.

ChannelMix: RWKV-7's MLP, over a state.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

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
from edgegen_export.architecture.components.mlp import MLP
from edgegen_export.architecture.components.norm import Norm

_LARGEST_DECAY = 0.6065306597126334
"""exp(-1/2): the largest negated logarithm of a decay."""


@dataclass(frozen=True, slots=True)
class TimeMix(Mixer):
    """RWKV-7's time mixing (Peng et al. 2025, arXiv:2503.14456). The state of a head, S [head_dim, head_dim], by
    channels of the key and of the value, becomes ``diag(exp(-d)) S - (u · rate) ⊗ u S + k ⊗ v``, and r reads it.

    Every projection takes a blend of its own, ``x + (before - x) · shift``, of a token and the one before it. u is
    ``k · key_scale``, each head scaled to length one; d is ``exp(-1/2) · sigmoid(w)``; rate is a sigmoid, and k becomes
    ``k + k · (rate - 1) · key_rate``. Behind the ``first`` layer, v is moved towards v of the first one, by the sigmoid
    of mix. What r reads is normalized by head with ``eps``; ``sum(r · k · bonus) · v`` by head is added, and the sum is
    multiplied with gate. w, rate, mix and gate are projected of a few numbers each, which pass tanh in w and a sigmoid
    in gate.
    """

    heads: int
    head_dim: int
    decay_rank: int
    rate_rank: int
    mix_rank: int
    gate_rank: int
    eps: float
    first: bool = False

    name: ClassVar[str] = "time"
    parts: ClassVar[tuple[str, ...]] = ("r", "w", "k", "v", "rate", "gate")
    """Projections that take a blend of their own."""
    trained: ClassVar[tuple[str, ...]] = ("key_scale", "key_rate", "bonus")
    smoothed: ClassVar[str] = "gate"
    operators_since: ClassVar[str] = LEAST_ONNXRUNTIME
    largest_decay: ClassVar[float] = _LARGEST_DECAY

    @property
    def channels(self) -> int:
        return self.heads * self.head_dim

    @property
    def ranks(self) -> Mapping[str, int]:
        """The sizes of what comes between the two matrices of a low rank."""
        mix = {} if self.first else {"mix": self.mix_rank}
        return {"w": self.decay_rank, **mix, "rate": self.rate_rank, "gate": self.gate_rank}

    @property
    def of_value(self) -> Modules:
        """The matrices that take the blend of v, which the graph fuses."""
        return tuple(f"{self.name}.{part}" for part in ("v", *([] if self.first else ["mix_in"])))

    @property
    def inputs(self) -> Modules:
        return tuple(module for modules in self._taking for module in modules)

    @property
    def _taking(self) -> tuple[Modules, ...]:
        of_one = (("r",), ("k",), *((f"{part}_in",) for part in ("w", "rate", "gate")))
        return (*(tuple(f"{self.name}.{part}" for part in parts) for parts in of_one), self.of_value)

    @property
    def products(self) -> tuple[Modules, ...]:
        return *self._taking, *((f"{self.name}.{part}",) for part in self.ranks), self.outputs

    @property
    def spare(self) -> Modules:
        """The first layer moves its values towards nothing; some checkpoints have the matrices all the same."""
        names = ("mix_in.weight", "mix.weight", "mix.bias")
        return tuple(f"{self.name}.{name}" for name in names) if self.first else ()

    @property
    def smoothing_pairs(self) -> tuple[Pair, ...]:
        plain = (part for part in self.ranks if part not in ("w", "gate"))
        low = (Pair(f"{self.name}.{part}_in", (f"{self.name}.{part}",)) for part in plain)
        return Pair(f"{self.name}.{self.smoothed}", self.outputs), *low

    def matrices(self, hidden: int) -> Shapes:
        low = {f"{part}_in": (rank, hidden) for part, rank in self.ranks.items()}
        high = {part: (self.channels, rank) for part, rank in self.ranks.items()}
        wide = dict.fromkeys(("r", "k", "v"), (self.channels, hidden))
        return self.named({**wide, **low, **high, "out": (hidden, self.channels)})

    def numbers(self, hidden: int) -> Shapes:
        shifts = {f"shift_{part}": (hidden,) for part in self.parts}
        ours = dict.fromkeys(self.trained[:2], (self.channels,))
        return self.named({**shifts, **ours, "bonus": (self.heads, self.head_dim)})

    def norms(self, norm: Norm, hidden: int) -> Norms:
        return {f"{self.name}.norm": (Norm("layer", self.eps, bias=True), (self.channels,))}

    def carries(self, hidden: int) -> Mapping[str, int]:
        """The values of the first layer."""
        return {SECOND_STREAM: self.channels}

    def states(self, hidden: int) -> Shapes:
        return {"time_shift": (1, hidden), "time": (self.heads, self.head_dim, self.head_dim)}

    def fold(self, layer: str, tensors: Tensors, hidden: int) -> None:
        """The bonus of all heads in a row."""
        bonus = f"{layer}{self.name}.bonus"
        tensors[bonus] = tensors[bonus].reshaped((self.channels,))


@dataclass(frozen=True, slots=True)
class ChannelMix(MLP):
    """RWKV's channel mixing (Peng et al. 2023, arXiv:2305.13048): an MLP that takes ``x + (before - x) · shift``."""

    def numbers(self, hidden: int) -> Shapes:
        return {"mlp.shift": (hidden,)}

    def states(self, hidden: int) -> Shapes:
        return {"mlp_shift": (1, hidden)}
