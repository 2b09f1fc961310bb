"""Top-k sampling: keeps the likeliest tokens."""

import numpy as np
from numpy.typing import NDArray

from edgegen.errors import OptionError
from edgegen.sampling.candidates import Candidates
from edgegen.sampling.processor import LogitsContext

_ROWS = 32
"""Rows a vocabulary is folded into for a first look; folds of a power of two suit the processor's vectors."""


class TopK:
    """Keeps the ``k`` likeliest tokens, and all that are as likely as the last of these.

    Fan, Lewis and Dauphin, "Hierarchical Neural Story Generation", 2018 (arXiv:1805.04833).
    """

    def __init__(self, k: int) -> None:
        """
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
