"""Entropy of the candidates' distribution, for eta and locally typical sampling."""

import math

import numpy as np
from numpy.typing import NDArray

from edgegen.sampling.candidates import WEIGHT_OF_BEST

_FARTHEST = np.float32(-1000.0)
"""Stands for minus infinity, which times zero would be no number."""


def entropy(logits: NDArray[np.float32], weights: NDArray[np.float32], total: float) -> float:
    """In nats; ``weights`` ``[N]`` are those of ``logits`` ``[N]``, ``total`` their sum."""
    distances = logits - logits.max()
    np.maximum(distances, _FARTHEST, out=distances)
    distances *= weights
    return math.log(total / WEIGHT_OF_BEST) - float(distances.sum(dtype=np.float64)) / total
