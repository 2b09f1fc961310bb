"""Top-n-sigma sampling: keeps tokens within some standard deviations of the highest logit."""

import numpy as np

from edgegen.sampling.candidates import Candidates
from edgegen.sampling.processor import LogitsContext

_LOWEST = float(np.finfo(np.float32).min)


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
