"""Frequency and presence penalties: make tokens less likely that were generated already."""

import numpy as np

from edgegen.sampling.candidates import Candidates
from edgegen.sampling.processor import LogitsContext
from edgegen.sampling.processors.token_counts import TokenCounts


class FrequencyPenalty:
    """Lowers a token's logit by ``frequency`` for each time it was generated, and by ``presence`` if it was at all.

    Negative penalties raise it. The prompt does not count, as OpenAI defines it; with ``last_n``, llama.cpp's
    window, the last n tokens do, whichever they are.

    OpenAI, API reference, ``frequency_penalty`` and ``presence_penalty``.
    """

    def __init__(self, frequency: float, presence: float, last_n: int | None = None) -> None:
        self.frequency = np.float32(frequency)
        self.presence = np.float32(presence)
        self.last_n = last_n
        self._seen = TokenCounts()

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        ids = context.token_ids
        self._seen.update(ids, context.prompt_length if self.last_n is None else max(0, len(ids) - self.last_n))
        at, present = candidates.locate(self._seen.ids)
        counts = self._seen.counts[present]
        logits = candidates.logits[at]
        logits -= counts * self.frequency
        logits[counts > 0] -= self.presence
        return candidates.replace(at, logits)
