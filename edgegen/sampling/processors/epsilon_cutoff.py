"""Epsilon sampling: removes tokens below an absolute probability."""

from edgegen.sampling.candidates import Candidates
from edgegen.sampling.processor import LogitsContext
from edgegen.sampling.running_sum import RunningSum


class EpsilonCutoff:
    """Keeps the tokens with at least probability ``epsilon``; the likeliest, where none has.

    Hewitt, Manning and Liang, "Truncation Sampling as Language Model Desmoothing", 2022 (arXiv:2210.15191).
    """

    def __init__(self, epsilon: float) -> None:
        self.epsilon = epsilon

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        weights = candidates.weights()
        return candidates.keep_from(weights, self.epsilon * RunningSum(weights).total)
