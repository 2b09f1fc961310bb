"""No-repeat n-gram: no n-gram is generated twice."""

import numpy as np
from numpy.typing import NDArray

from edgegen.sampling.candidates import Candidates
from edgegen.sampling.id_array import IdArray
from edgegen.sampling.processor import LogitsContext


class NoRepeatNGram:
    """Masks each token that would complete ``size`` tokens that stand in the prompt or the text already.

    Paulus, Xiong and Socher, "A Deep Reinforced Model for Abstractive Summarization", 2017 (arXiv:1705.04304),
    section 2.5.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._ids = IdArray()

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        completing = self._completing(self._ids.view(context.token_ids))
        return candidates.mask(completing) if completing.size else candidates

    def _completing(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """The tokens that followed an earlier occurrence of the last tokens."""
        before = self.size - 1
        if ids.size < self.size:
            return ids[:0]
        if before == 0:
            return ids
        # Ends of earlier occurrences, narrowed token by token from the last one back.
        ends = before - 1 + np.flatnonzero(ids[before - 1 : -1] == ids[-1])
        for back in range(1, before):
            ends = ends[ids[ends - back] == ids[-1 - back]]
        return ids[ends + 1]
