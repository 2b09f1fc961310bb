"""XTC (exclude top choices): sometimes removes the likeliest tokens."""

import numpy as np

from edgegen.sampling.candidates import MASKED, Candidates
from edgegen.sampling.processor import LogitsContext
from edgegen.sampling.random_numbers import uniform
from edgegen.sampling.running_sum import RunningSum

_STREAM = 1
"""A random stream of its own, independent of the sampler's at the same position."""


class Xtc:
    """With ``probability``, masks all tokens at least as likely as ``threshold`` but the least likely of them.

    Of equally likely ones that of the highest id stays. A threshold above one half never has two to choose from.

    p-e-w, "Exclude Top Choices (XTC)", 2024 (oobabooga/text-generation-webui, pull request 6335).
    """

    def __init__(self, probability: float, threshold: float, seed: int) -> None:
        self.probability = probability
        self.threshold = threshold
        self.seed = seed

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        if uniform(self.seed, len(context.token_ids), _STREAM) >= self.probability:
            return candidates
        weights = candidates.weights()
        threshold = max(1.0, self.threshold * RunningSum(weights).total)  # masked tokens are no top choices
        top = np.flatnonzero(weights >= threshold)
        if top.size < 2:
            return candidates
        least = top.size - 1 - int(candidates.logits[top[::-1]].argmin())
        return candidates.replace(np.delete(top, least), MASKED)
