"""GatedMemory: a mixer that reads what an earlier layer's state space gave, and keeps nothing."""

from dataclasses import dataclass
from typing import ClassVar

from edgegen_export.architecture.components.component import LEAST_ONNXRUNTIME, Shapes
from edgegen_export.architecture.components.mixer import Mixer


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
