"""Token masks: applies a bit per allowed token to logits."""

import numpy as np
from numpy.typing import NDArray

from edgegen.sampling import Candidates

_SPARSE = 16
"""With fewer than one byte in ``_SPARSE`` set, listing tokens is cheaper than masking all the rest."""

_ADDENDS = np.where(
    np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1, bitorder="little"), np.float32(0), -np.float32("inf")
)
"""``[256, 8]`` float32: for each byte of a mask, what to add to the logits of its eight tokens."""


def keep_allowed(candidates: Candidates, mask: NDArray[np.uint8]) -> Candidates:
    """The candidates whose bit of ``mask`` is set; others are gone, or have a logit of minus infinity.

    Args:
        mask: ``[ceil(vocabulary / 8)]`` uint8, the lowest bit first.
    """
    logits = candidates.logits
    if candidates.ids is not None:
        ids = candidates.ids
        return candidates.keep(np.flatnonzero(mask[ids >> 3] >> (ids & 7).astype(np.uint8) & 1))
    if np.count_nonzero(mask) * _SPARSE < mask.size:
        return candidates.keep(_set_bits(mask))
    masked = _ADDENDS.take(mask, axis=0).reshape(-1)[: logits.size]
    masked += logits
    return candidates.with_logits(masked)


def _set_bits(mask: NDArray[np.uint8]) -> NDArray[np.int64]:
    """The positions of set bits, ascending."""
    at = np.flatnonzero(mask)
    rows, bits = np.nonzero(np.unpackbits(mask[at][:, None], axis=1, bitorder="little"))
    return at[rows] * 8 + bits
