"""Candidates: the tokens that may come next, with their logits."""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from edgegen.errors import LogitsError, OptionLogitsError

NOT_FINITE = "the model's logits are NaN or infinite: export it with --fp32 to see whether quantization is to blame"
"""The error of logits of which none is the highest."""

WEIGHT_OF_BEST = 2.0**34
"""The best candidate's weight; up to 2**19 of them add up exactly in a float64."""

MASKED = np.array(-math.inf, dtype=np.float32)


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """Token ids that may come next, in ascending order, with their logits.

    All of a vocabulary to begin with, and then without a list of ids; what a processor removes is gone. A
    logit of minus infinity is allowed and never drawn. The arrays are never written to: the first are the
    model's own.

    Attributes:
        logits: ``[N]`` float32.
        ids: ``[N]`` int64, ascending; None when they are 0 … N-1.
    """

    logits: NDArray[np.float32]
    ids: NDArray[np.int64] | None = None

    def id_at(self, index: int) -> int:
        """The token id at ``index``."""
        return index if self.ids is None else int(self.ids[index])

    def locate(self, ids: NDArray[np.int64]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """The indices of ``ids`` (``[M]``, in any order).

        Returns:
            Which of ``ids`` are candidates, ``[M]``, and the indices of these.
        """
        if self.ids is None:
            present = ids < self.logits.size
            return ids[present], present
        at = self.ids.searchsorted(ids)
        at[at == self.ids.size] = 0
        present = self.ids[at] == ids
        return at[present], present

    def with_logits(self, logits: NDArray[np.float32]) -> Self:
        """The same tokens with other logits, ``[N]`` float32."""
        return type(self)(logits, self.ids)

    def replace(self, at: NDArray[np.int64], logits: NDArray[np.float32]) -> Self:
        """The same tokens, those at the indices ``at`` with other ``logits``."""
        changed = self.logits.copy()
        changed[at] = logits
        return self.with_logits(changed)

    def mask(self, ids: NDArray[np.int64]) -> Self:
        """The same tokens, those of ``ids`` among them with logit minus infinity."""
        at, _ = self.locate(ids)
        return self.replace(at, MASKED) if at.size else self

    def force(self, ids: NDArray[np.int64]) -> Self:
        """The same tokens, those of ``ids`` among them equally likely and all others masked."""
        logits = np.full_like(self.logits, -math.inf)
        logits[self.locate(ids)[0]] = 0.0
        return self.with_logits(logits)

    def keep(self, indices: NDArray[np.int64]) -> Self:
        """Only the tokens at ``indices``, which ascend."""
        return type(self)(self.logits.take(indices), indices if self.ids is None else self.ids.take(indices))

    def keep_from(self, weights: NDArray[np.float32], least: float) -> Self:
        """Only the tokens of at least weight ``least``, or else the likeliest; ``weights`` are :meth:`weights`."""
        kept = np.flatnonzero(weights >= least)
        if not kept.size:
            kept = np.flatnonzero(self.logits == self.logits.max())
        # What is no number equals nothing; one of them stays, to be noticed when a token is chosen.
        return self.keep(kept if kept.size else np.array([self.logits.argmax()]))

    def best(self) -> int:
        """The index of the highest logit; of equal ones, the lowest id's.

        Raises:
            LogitsError: a logit is NaN or plus infinity, or all are minus infinity.
        """
        if not self.logits.size:
            _check_highest(-math.inf)
        index = int(self.logits.argmax())  # the first NaN's, where there is one
        _check_highest(float(self.logits[index]))
        return index

    def check(self) -> None:
        """Refuse logits that cannot be sampled from.

        Raises:
            LogitsError: as ``best``.
        """
        _check_highest(float(self.logits.max(initial=-math.inf)))

    def weights(self) -> NDArray[np.float32]:
        """Probabilities, scaled to whole numbers of which the best candidate's is ``WEIGHT_OF_BEST``.

        Sums of whole numbers are exact, so neither their order nor the candidates removed before can change
        what is drawn. Nothing that matters is lost: tokens 3e-11 times as likely as the best have weight
        zero.

        Returns:
            ``[N]`` float32, a new array.

        Raises:
            LogitsError: as ``best``.
        """
        highest = float(self.logits.max(initial=-math.inf))
        _check_highest(highest)
        with np.errstate(over="ignore"):  # a masked logit near the lowest float may become minus infinity
            weights = self.logits - np.float32(highest)
        np.exp(weights, out=weights)
        weights *= np.float32(WEIGHT_OF_BEST)
        return np.rint(weights, out=weights)


def _check_highest(logit: float) -> None:
    if math.isnan(logit) or logit == math.inf:
        raise LogitsError(NOT_FINITE)
    if logit == -math.inf:
        raise OptionLogitsError("no token is left to choose from: all of them are masked")
