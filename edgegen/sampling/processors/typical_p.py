"""Locally typical sampling: keeps the most typical tokens up to a total probability."""

import math
from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from edgegen.sampling.candidates import WEIGHT_OF_BEST, Candidates
from edgegen.sampling.processor import LogitsContext
from edgegen.sampling.processors.entropy import entropy
from edgegen.sampling.running_sum import RunningSum

_ROUNDING = 1e-3
"""Far more than a weight's logarithm is off by."""


class TypicalP:
    """Keeps the tokens whose surprise is nearest to the expected surprise, until they together reach probability ``p``.

    All that are as near as the last of these stay. The likeliest token may go.

    Meister et al., "Locally Typical Sampling", 2022 (arXiv:2202.00666).
    """

    def __init__(self, p: float) -> None:
        self.p = p

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        logits, weights = candidates.logits, candidates.weights()
        total = RunningSum(weights).total
        # In nats: a weight's logarithm less this is what its token's surprise lacks to the expected one.
        expected = math.log(total) - entropy(logits, weights, total)
        beyond = np.float64(math.log(WEIGHT_OF_BEST) - expected) - logits.max()  # in float64, as all that is compared

        # Weights far too small to be reached need no sorting, if what is reached without them is nearer than they are.
        height = (1.0 - self.p) * total / weights.size
        for least in (height, 0.0):
            some = np.flatnonzero(weights > least)
            signed = logits[some] + beyond
            reach = _reach(np.sort(signed), np.sort(weights[some]), self.p * total)
            if least == 0.0 or reach < expected - math.log(least) - _ROUNDING:
                return candidates.keep(some[np.abs(signed) <= reach])
        raise AssertionError("the second round always ends")


def _reach(signed: NDArray[np.float64], weights: NDArray[np.float32], bound: float) -> float:
    """How far from 0 the nearest of ``signed`` are that together weigh ``bound``; both arrays ``[N]`` ascend."""
    cumulated = np.concatenate([[0.0], weights.cumsum(dtype=np.float64)])

    def weight_within(distance: float) -> float:
        return float(cumulated[signed.searchsorted(distance, side="right")] - cumulated[signed.searchsorted(-distance)])

    middle = signed.searchsorted(0.0)
    sides = (-signed[:middle][::-1], signed[middle:])
    nearest = [bisect_left(side, bound, key=weight_within) for side in sides]  # pyright: ignore
    return min((float(side[at]) for side, at in zip(sides, nearest, strict=True) if at < side.size), default=math.inf)
