"""Eta sampling: removes tokens below a probability that depends on the entropy."""

import math

from edgegen.sampling.candidates import Candidates
from edgegen.sampling.processor import LogitsContext
from edgegen.sampling.processors.entropy import entropy
from edgegen.sampling.running_sum import RunningSum


class EtaCutoff:
    """Keeps the tokens with at least probability ``min(epsilon, sqrt(epsilon) exp(-entropy))``; the likeliest at least.

    Hewitt, Manning and Liang, "Truncation Sampling as Language Model Desmoothing", 2022 (arXiv:2210.15191).
    """

    def __init__(self, epsilon: float) -> None:
        self.epsilon = epsilon

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        weights = candidates.weights()
        total = RunningSum(weights).total
        surprise = entropy(candidates.logits, weights, total)
        eta = min(self.epsilon, math.sqrt(self.epsilon) * math.exp(-surprise))
        return candidates.keep_from(weights, eta * total)
