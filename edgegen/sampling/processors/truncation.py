"""Truncation: the tokens that sampling leaves out, by their probabilities."""

import math
from bisect import bisect_left

import numpy as np
from numpy.typing import NDArray

from edgegen.errors import OptionError
from edgegen.sampling.candidates import MASKED, WEIGHT_OF_BEST, Candidates
from edgegen.sampling.processor import LogitsContext
from edgegen.sampling.random_numbers import uniform
from edgegen.sampling.running_sum import RunningSum

_ROWS = 32
"""Rows a vocabulary is folded into for a first look; folds of a power of two suit the processor's vectors."""
_LOWEST = float(np.finfo(np.float32).min)
_ROUNDING = 1e-3
"""Far more than a weight's logarithm is off by."""
_FARTHEST = np.float32(-1000.0)
"""Stands for minus infinity, which times zero would be no number."""
_STREAM = 1
"""A random stream of its own, independent of the sampler's at the same position."""


class TopK:
    """Keeps the ``k`` likeliest tokens, and all that are as likely as the last of these.

    Fan, Lewis and Dauphin, "Hierarchical Neural Story Generation", 2018 (arXiv:1805.04833).
    """

    def __init__(self, k: int) -> None:
        """Keep the ``k`` likeliest tokens.

        Raises:
            OptionError: ``k`` is less than 1.
        """
        if k < 1:
            raise OptionError(f"top_k must be at least 1, not {k}; leave it out to choose from all tokens")
        self.k = k

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        if self.k >= candidates.logits.size:
            return candidates
        floor = _floor_of_best(candidates.logits, self.k)
        if floor is not None:
            candidates = candidates.keep(np.flatnonzero(candidates.logits >= floor))
        kth = candidates.logits.size - self.k
        return candidates.keep(np.flatnonzero(candidates.logits >= np.partition(candidates.logits, kth)[kth]))


def _floor_of_best(logits: NDArray[np.float32], k: int) -> np.float32 | None:
    """A value near the k-th largest that at least ``k`` of the logits reach; None if ``k`` is too large.

    With the logits folded into columns, each of the k best columns has a logit as high as the k-th best's
    maximum.
    """
    columns = logits.size // _ROWS
    if columns <= k:
        return None
    highest = logits[: _ROWS * columns].reshape(_ROWS, columns).max(axis=0)
    return np.partition(highest, columns - k)[columns - k]


class TopP:
    """Keeps the likeliest tokens that together reach probability ``p``, one at least.

    From the least likely on, tokens go while all that went have at most probability 1 - p; of equally likely
    ones the lower id goes first. So does transformers, whose sort leaves the order of equals open.

    Holtzman et al., "The Curious Case of Neural Text Degeneration", 2019 (arXiv:1904.09751).
    """

    def __init__(self, p: float) -> None:
        """Keep the likeliest tokens up to a total probability of ``p``.

        Raises:
            OptionError: ``p`` is not between 0 and 1.
        """
        if not 0.0 <= p <= 1.0:
            raise OptionError(f"top_p is a probability between 0 and 1, not {p}")
        self.p = p

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        weights = candidates.weights()
        total = RunningSum(weights).total
        may_go = math.floor((1.0 - self.p) * total)

        # Weights far too small to stay need no sorting: at this height all of them together may go.
        height = min(0.99 * may_go / weights.size, WEIGHT_OF_BEST / 2)
        ascending = np.sort(weights[weights > height])
        sums = RunningSum(ascending)
        gone = min(sums.first_beyond(may_go - (total - sums.total)), ascending.size - 1)
        lowest: np.float32 = ascending[gone]

        kept: NDArray[np.bool_] = weights >= lowest
        equals_gone = gone - int(ascending.searchsorted(lowest))
        if equals_gone:
            equals = np.flatnonzero(weights == lowest)
            # The logits decide first: rounding has made some of the weights equal.
            worst_first = candidates.logits[equals].argsort(kind="stable")
            kept[equals[worst_first[:equals_gone]]] = False
        return candidates.keep(np.flatnonzero(kept))


class MinP:
    """Keeps the tokens that are at least ``p`` times as likely as the likeliest.

    Nguyen et al., "Turning Up the Heat: Min-p Sampling for Creative and Coherent LLM Outputs", 2024 (arXiv:2407.01082).
    """

    def __init__(self, p: float) -> None:
        self._distance = np.float32(math.log(p))

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        highest = candidates.logits[candidates.best()]
        return candidates.keep(np.flatnonzero(candidates.logits >= highest + self._distance))


class TopNSigma:
    """Keeps the tokens whose logit is within ``n`` standard deviations of the highest.

    The deviation is that of all logits that are not masked. Dividing the logits by a temperature changes nothing here.

    Tang et al., "Top-nσ: Not All Logits Are You Need", 2024 (arXiv:2411.07641).
    """

    def __init__(self, n: float) -> None:
        self.n = n

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        logits = candidates.logits
        highest = float(logits[candidates.best()])
        # Masks that are finite would make the deviation meaningless.
        valid = logits if logits.min() > _LOWEST else logits[logits > _LOWEST]
        if not valid.size:
            return candidates
        floor = highest - self.n * float(valid.std(dtype=np.float64))
        return candidates.keep(np.flatnonzero(logits >= np.float32(max(floor, _LOWEST))))


class EpsilonCutoff:
    """Keeps the tokens with at least probability ``epsilon``; the likeliest, where none has.

    Hewitt, Manning and Liang, "Truncation Sampling as Language Model Desmoothing", 2022 (arXiv:2210.15191).
    """

    def __init__(self, epsilon: float) -> None:
        self.epsilon = epsilon

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        weights = candidates.weights()
        return candidates.keep_from(weights, self.epsilon * RunningSum(weights).total)


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


def entropy(logits: NDArray[np.float32], weights: NDArray[np.float32], total: float) -> float:
    """In nats; ``weights`` ``[N]`` are those of ``logits`` ``[N]``, ``total`` their sum."""
    distances = logits - logits.max()
    np.maximum(distances, _FARTHEST, out=distances)
    distances *= weights
    return math.log(total / WEIGHT_OF_BEST) - float(distances.sum(dtype=np.float64)) / total


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
