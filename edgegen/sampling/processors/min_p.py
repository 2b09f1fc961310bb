"""Min-p sampling: removes tokens far less likely than the likeliest."""

import math

import numpy as np

from edgegen.sampling.candidates import Candidates
from edgegen.sampling.processor import LogitsContext


class MinP:
    """Keeps the tokens that are at least ``p`` times as likely as the likeliest.

    Nguyen et al., "Turning Up the Heat: Min-p Sampling for Creative and Coherent LLM Outputs", 2024 (arXiv:2407.01082).
    """

    def __init__(self, p: float) -> None:
        self._distance = np.float32(math.log(p))

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        highest = candidates.logits[candidates.best()]
        return candidates.keep(np.flatnonzero(candidates.logits >= highest + self._distance))
