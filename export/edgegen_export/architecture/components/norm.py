"""Norm: LayerNorm or RMSNorm."""

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Norm:
    """``layer``: (x - mean) / sqrt(var + eps) · weight + bias over the last axis; ``rms``: x / sqrt(mean(x²) + eps) ·
    weight. ``offset`` is added to the stored weight, and ``factor`` multiplies the sum; ``weight`` and ``bias`` say
    which of them are trained."""

    kind: Literal["layer", "rms"]
    eps: float
    weight: bool = True
    bias: bool = False
    offset: float = 0.0
    factor: float = 1.0
