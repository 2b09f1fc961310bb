"""Top-p (nucleus) sampling: keeps the likeliest tokens up to a total probability."""

import math

import numpy as np
from numpy.typing import NDArray

from edgegen.errors import OptionError
from edgegen.sampling.candidates import WEIGHT_OF_BEST, Candidates
from edgegen.sampling.processor import LogitsContext
from edgegen.sampling.running_sum import RunningSum


class TopP:
    """Keeps the likeliest tokens that together reach probability ``p``, one at least.

    From the least likely on, tokens go while all that went have at most probability 1 - p; of equally likely
    ones the lower id goes first. So does transformers, whose sort leaves the order of equals open.

    Holtzman et al., "The Curious Case of Neural Text Degeneration", 2019 (arXiv:1904.09751).
    """

    def __init__(self, p: float) -> None:
        """
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
