"""Laurel: a learned residual of low rank."""

from dataclasses import dataclass

from edgegen_export.architecture.components.component import Component, Modules, Norms, Pair, Shapes
from edgegen_export.architecture.components.norm import Norm


@dataclass(frozen=True, slots=True)
class Laurel(Component):
    """A learned residual of low ``rank`` beside the attention of a ``sandwich_with_laurel`` (Menghani et al. 2024,
    arXiv:2411.07501)."""

    rank: int

    @property
    def products(self) -> tuple[Modules, ...]:
        return ("laurel.left",), ("laurel.right",)

    @property
    def smoothing_pairs(self) -> tuple[Pair, ...]:
        return (Pair("laurel.left", ("laurel.right",)),)

    def matrices(self, hidden: int) -> Shapes:
        return {"laurel.left": (self.rank, hidden), "laurel.right": (hidden, self.rank)}

    def norms(self, norm: Norm, hidden: int) -> Norms:
        return {"laurel.norm": (norm, (hidden,))}
