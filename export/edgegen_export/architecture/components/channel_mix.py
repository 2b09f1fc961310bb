"""ChannelMix: an MLP that takes a blend of a token and the one before it."""

from dataclasses import dataclass

from edgegen_export.architecture.components.component import Shapes
from edgegen_export.architecture.components.mlp import MLP


@dataclass(frozen=True, slots=True)
class ChannelMix(MLP):
    """RWKV's channel mixing (Peng et al. 2023, arXiv:2305.13048): an MLP that takes ``x + (before - x) · shift``."""

    def numbers(self, hidden: int) -> Shapes:
        return {"mlp.shift": (hidden,)}

    def states(self, hidden: int) -> Shapes:
        return {"mlp_shift": (1, hidden)}
