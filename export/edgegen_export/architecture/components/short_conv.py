"""ShortConv: a gated convolution over the last tokens."""

from dataclasses import dataclass
from typing import ClassVar

from edgegen_export.architecture.components.component import LEAST_ONNXRUNTIME, Shapes
from edgegen_export.architecture.components.mixer import Mixer


@dataclass(frozen=True, slots=True)
class ShortConv(Mixer):
    """A gated convolution over the last ``width`` tokens, each channel by itself: ``out(c · conv(b · v))``, where b, c
    and v are projections of what the layer takes."""

    width: int

    name: ClassVar[str] = "conv"
    parts: ClassVar[tuple[str, ...]] = ("b", "c", "v")
    smoothed: ClassVar[str] = "c"  # what out takes is multiplied with c
    operators_since: ClassVar[str] = LEAST_ONNXRUNTIME

    def matrices(self, hidden: int) -> Shapes:
        return self.named(dict.fromkeys((*self.parts, "out"), (hidden, hidden)))

    def kernels(self, hidden: int) -> Shapes:
        return self.named({"kernel": (hidden, 1, self.width)})

    def states(self, hidden: int) -> Shapes:
        return {"state": (self.width - 1, hidden)}
