"""Renormalization: turns logits into log-probabilities."""

import math

import numpy as np
from numpy.typing import NDArray

from edgegen.sampling.candidates import Candidates
from edgegen.sampling.processor import LogitsContext


class Renormalization:
    """Makes the logits of what is left log-probabilities, for scores that add up (``renormalize_logits``)."""

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        candidates.best()
        return candidates.with_logits(log_softmax(candidates.logits))


def log_softmax(logits: NDArray[np.float32]) -> NDArray[np.float32]:
    """``[N]`` float32, a new array; NaN throughout where a logit is no number."""
    with np.errstate(invalid="ignore"):  # infinity less itself
        shifted = logits - logits.max()
    return shifted - np.float32(math.log(np.exp(shifted).sum()))
