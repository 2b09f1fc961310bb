"""Remove invalid values: replaces NaN and infinities in the logits."""

import numpy as np

from edgegen.sampling.candidates import Candidates
from edgegen.sampling.processor import LogitsContext

_LIMITS = np.finfo(np.float32)


class RemoveInvalidValues:
    """NaN becomes 0, and the infinities the highest and lowest number there is, instead of an error.

    transformers' ``remove_invalid_values``.
    """

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        if candidates.logits.min() > -np.inf and candidates.logits.max() < np.inf:
            return candidates
        logits = np.nan_to_num(candidates.logits, nan=0.0, posinf=float(_LIMITS.max), neginf=float(_LIMITS.min))
        return candidates.with_logits(logits)
