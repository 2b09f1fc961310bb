"""The tokens that may come next, and their logits."""

import math
from dataclasses import dataclass
from typing import Self

import numpy as np
from numpy.typing import NDArray

from edgegen.errors import EdgegenError

WEIGHT_OF_BEST = 2.0**34
"""The best candidate's weight; up to 2**19 of them add up exactly in a float64."""


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

    def indices_of(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """Where those of ``ids`` (ascending, each once) that are candidates stand among them."""
        if self.ids is None:
            return ids[: ids.searchsorted(self.logits.size)]
        at = self.ids.searchsorted(ids)
        at[at == self.ids.size] = 0
        return at[self.ids[at] == ids]

    def with_logits(self, logits: NDArray[np.float32]) -> Self:
        """The same tokens with other logits, ``[N]`` float32."""
        return type(self)(logits, self.ids)

    def keep(self, indices: NDArray[np.int64]) -> Self:
        """Only the tokens at ``indices``, which ascend."""
        return type(self)(self.logits.take(indices), indices if self.ids is None else self.ids.take(indices))

    def best(self) -> int:
        """The index of the highest logit, the lowest id's of equals.

        Raises:
            EdgegenError: a logit is NaN or plus infinity, or all are minus infinity.
        """
        index = int(self.logits.argmax())  # the first NaN's, where there is one
        _check_highest(float(self.logits[index]))
        return index

    def weights(self) -> NDArray[np.float32]:
        """Probabilities, scaled to whole numbers of which the best candidate's is ``WEIGHT_OF_BEST``.

        Sums of whole numbers are exact, so neither their order nor the candidates removed before can change
        what is drawn. Nothing that matters is lost: tokens 3e-11 times as likely as the best have weight
        zero.

        Returns:
            ``[N]`` float32, a new array.

        Raises:
            EdgegenError: as ``best``.
        """
        highest = float(self.logits.max())
        _check_highest(highest)
        weights = self.logits - np.float32(highest)
        np.exp(weights, out=weights)
        weights *= np.float32(WEIGHT_OF_BEST)
        return np.rint(weights, out=weights)


def _check_highest(logit: float) -> None:
    if math.isnan(logit) or logit == math.inf:
        raise EdgegenError(
            "the model's logits are NaN or infinite: export it with --fp32 to see whether quantization is to blame"
        )
    if logit == -math.inf:
        raise EdgegenError("no token is left to choose from: all of them are masked")
