"""Exponential decay length penalty: makes the end likelier the longer the answer is."""

from collections.abc import Collection

import numpy as np

from edgegen.sampling.candidates import Candidates
from edgegen.sampling.processor import LogitsContext

_CERTAIN = float(np.finfo(np.float32).max)


class ExponentialDecayLengthPenalty:
    """After ``start`` generated tokens, makes the end likelier by ``factor`` to the power of the excess.

    What is added is the end's own logit without its sign, times that power less one. A masked end stays masked.

    transformers' ``exponential_decay_length_penalty``.
    """

    def __init__(self, start: int, factor: float, eos_token_ids: Collection[int]) -> None:
        self.start = start
        self.factor = factor
        self._eos = np.array(sorted(eos_token_ids), np.int64)

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        excess = context.step - self.start
        if excess <= 0:
            return candidates
        at, _ = candidates.locate(self._eos)
        logits = candidates.logits[at]
        power = min(float(np.float64(self.factor) ** excess), _CERTAIN)
        raised = np.minimum(logits + np.abs(logits) * np.float32(power - 1), np.float32(_CERTAIN))
        return candidates.replace(at, np.where(logits <= -_CERTAIN, logits, raised))
