"""RunningSum: where the cumulative sum over a vocabulary passes a bound, without computing all of it."""

import numpy as np
from numpy.typing import NDArray

_RUN = 512
"""Weights per partial sum."""


class RunningSum:
    """The running sum of ``weights``, ``[N]`` float32 whole numbers (``Candidates.weights``), N at least 1.

    Holds the sums of whole runs and looks into one run when asked, a fraction of the cost of
    ``numpy.cumsum``.
    """

    def __init__(self, weights: NDArray[np.float32]) -> None:
        self._weights = weights
        run_starts = np.arange(0, weights.size, _RUN)
        self._through_run = np.add.reduceat(weights, run_starts, dtype=np.float64).cumsum()
        self.total = float(self._through_run[-1])

    def first_beyond(self, bound: float) -> int:
        """The first index at which the sum, its own weight included, exceeds ``bound``; N where none does."""
        run = int(self._through_run.searchsorted(bound, side="right"))
        if run == self._through_run.size:
            return self._weights.size
        before = self._through_run[run - 1] if run else 0.0
        within = before + self._weights[run * _RUN : (run + 1) * _RUN].cumsum(dtype=np.float64)
        return run * _RUN + int(within.searchsorted(bound, side="right"))
