"""Repetition penalty."""

import math

import numpy as np

from edgegen.errors import OptionError
from edgegen.logits.candidates import Candidates
from edgegen.logits.processor import LogitsContext


class RepetitionPenalty:
    """Makes every token that stands in the prompt or the text so far less likely (``penalty`` above 1), or more so.

    A positive logit is divided by the penalty, a negative one multiplied, once per token however often it stood there.

    Keskar et al., "CTRL: A Conditional Transformer Language Model for Controllable Generation", 2019
    (arXiv:1909.05858).
    """

    def __init__(self, penalty: float) -> None:
        """
        Raises:
            OptionError: the penalty is not a positive number.
        """
        if not 0 < penalty < math.inf:
            raise OptionError(f"repetition_penalty must be a positive number, not {penalty}; 1 is none")
        self.penalty = np.float32(penalty)

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        at = candidates.indices_of(np.unique(np.asarray(context.token_ids, np.int64)))
        logits = candidates.logits.copy()
        seen = logits[at]
        logits[at] = np.where(seen < 0, seen * self.penalty, seen / self.penalty)
        return candidates.with_logits(logits)
