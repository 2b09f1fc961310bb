"""DifferentialAttention: what one query of a pair reads, less a part of what the other one reads."""

from dataclasses import dataclass, field

import numpy as np

from edgegen_export.architecture.components.attention import Attention
from edgegen_export.architecture.components.component import Norms, Pair, Shapes, Tensors
from edgegen_export.architecture.components.norm import Norm
from edgegen_export.tensors.lazy import LazyTensor

_RATES = tuple(f"attn.rate_{name}" for name in ("q1", "k1", "q2", "k2"))


@dataclass(frozen=True, slots=True)
class DifferentialAttention(Attention):
    """Attention of pairs of queries over pairs of keys and values (Ye et al. 2024, arXiv:2410.05258):
    ``norm(softmax(q1 k1) (v1; v2) - rate · softmax(q2 k2) (v1; v2))``.

    A pair of keys is one key of ``head_dim`` numbers, and so is a pair of values: ``kv_heads`` counts pairs, ``heads``
    the queries, which have ``size`` numbers each, half as many; ``rope`` rotates each key of a pair. ``rate`` is
    trained, ``exp(rate_q1 · rate_k1) - exp(rate_q2 · rate_k2) + initial``. ``pair_norm``: of what a pair has read, with
    one weight [head_dim] for all.
    """

    initial: float = field(kw_only=True)
    pair_norm: Norm = field(kw_only=True)

    @property
    def size(self) -> int:
        """Numbers of a query, and of each key of a pair."""
        return self.head_dim // 2

    @property
    def width(self) -> int:
        return self.heads * self.size

    @property
    def smoothing_pairs(self) -> tuple[Pair, ...]:
        return (Pair("attn.pair_norm", self.outputs, self.heads // 2, self.head_dim),)

    def numbers(self, hidden: int) -> Shapes:
        return dict.fromkeys(_RATES, (self.size,))

    def norms(self, norm: Norm, hidden: int) -> Norms:
        return {"attn.pair_norm": (self.pair_norm, (self.head_dim,))}

    def fold(self, layer: str, tensors: Tensors, hidden: int) -> None:
        """The rate as it is multiplied."""
        q1, k1, q2, k2 = (tensors.pop(f"{layer}{name}").read() for name in _RATES)
        rate = np.exp(np.sum(q1 * k1)) - np.exp(np.sum(q2 * k2)) + self.initial
        tensors[f"{layer}attn.rate"] = LazyTensor.from_array(np.array([rate], np.float32))
