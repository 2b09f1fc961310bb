"""Mirostat, version 2: sampling with a target surprise."""

import math
from collections.abc import Sequence

import numpy as np

from edgegen.sampling.candidates import Candidates
from edgegen.sampling.processor import LogitsContext
from edgegen.sampling.running_sum import RunningSum


class Mirostat:
    """Keeps the tokens whose surprise is at most ``mu`` bits, and steers ``mu`` so that what is drawn has ``tau``.

    ``mu`` begins at twice ``tau``; each token that is drawn moves it by ``eta`` times the error of its surprise among
    those kept. The token is learnt at the next call, from the ids: so the state is that of one sequence, and a
    sequence that goes back keeps the ``mu`` it had.

    Basu et al., "Mirostat: A Neural Text Decoding Algorithm that Directly Controls Perplexity", 2020
    (arXiv:2007.14966); version 2 is that of the authors' code.
    """

    stateful = True

    def __init__(self, tau: float, eta: float) -> None:
        self.tau = tau
        self.eta = eta
        self.mu = 2.0 * tau
        self._position = -1
        self._kept: Candidates | None = None

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        if self._kept is not None and len(context.token_ids) > self._position:
            self._learn(self._kept, context.token_ids[self._position])
        weights = candidates.weights()
        total = RunningSum(weights).total
        self._kept = candidates.keep_from(weights, total * 2.0**-self.mu)
        self._position = len(context.token_ids)
        return self._kept

    def settle(self, token_ids: Sequence[int]) -> float:
        """``mu`` after ``token_ids``, the last of which was drawn from what this kept."""
        if self._kept is not None and len(token_ids) > self._position:
            self._learn(self._kept, token_ids[self._position])
            self._kept = None
        return self.mu

    def _learn(self, kept: Candidates, token_id: int) -> None:
        at, _ = kept.locate(np.array([token_id], np.int64))
        weights = kept.weights()
        if at.size and weights[at[0]] > 0:
            surprise = math.log2(RunningSum(weights).total / float(weights[at[0]]))
            self.mu -= self.eta * (surprise - self.tau)
