"""Repetition penalty: makes tokens of the prompt and the answer less likely."""

import math

import numpy as np

from edgegen.errors import OptionError
from edgegen.sampling.candidates import Candidates
from edgegen.sampling.processor import LogitsContext
from edgegen.sampling.processors.token_counts import TokenCounts


class RepetitionPenalty:
    """Makes every token of the prompt or the answer so far less likely (``penalty`` above 1), or more so.

    A positive logit is divided by the penalty, a negative one multiplied, once per token however often it stood there.
    With ``last_n``, llama.cpp's window, only the last n tokens count.

    Keskar et al., "CTRL: A Conditional Transformer Language Model for Controllable Generation", 2019
    (arXiv:1909.05858).
    """

    def __init__(self, penalty: float, last_n: int | None = None) -> None:
        """
        Raises:
            OptionError: the penalty is not a positive number.
        """
        if not 0 < penalty < math.inf:
            raise OptionError(f"repetition_penalty must be a positive number, not {penalty}; 1 is none")
        self.penalty = np.float32(penalty)
        self.last_n = last_n
        self._seen = TokenCounts()

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        ids = context.token_ids
        self._seen.update(ids, 0 if self.last_n is None else max(0, len(ids) - self.last_n))
        at, _ = candidates.locate(self._seen.ids[self._seen.counts > 0])
        seen = candidates.logits[at]
        return candidates.replace(at, np.where(seen < 0, seen * self.penalty, seen / self.penalty))
