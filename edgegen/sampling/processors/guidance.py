"""Classifier-free guidance: moves the distribution away from that of a negative prompt."""

import numpy as np
from numpy.typing import NDArray

from edgegen.sampling.candidates import Candidates
from edgegen.sampling.processor import LogitsContext
from edgegen.sampling.processors.normalization import log_softmax


class Guidance:
    """Moves the distribution away from the one after a negative prompt (``scale`` above 1), or towards it.

    ``context.unconditional`` are the logits of that other row.

    Sanchez et al., "Stay on topic with Classifier-Free Guidance", 2023 (arXiv:2306.17806).
    """

    def __init__(self, scale: float) -> None:
        self.scale = scale

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        assert context.unconditional is not None, "guidance needs the group's unconditional row"
        return candidates.with_logits(guide(candidates.logits, context.unconditional, self.scale))


def guide(conditional: NDArray[np.float32], unconditional: NDArray[np.float32], scale: float) -> NDArray[np.float32]:
    """``u + scale (c - u)`` on the log-probabilities of two rows of logits, ``[vocab]`` each.

    A token that either row masks keeps the conditional one.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        guided, other = log_softmax(conditional), log_softmax(unconditional)
        moved = guided - other
        moved *= np.float32(scale)
        moved += other
    if min(guided.min(), other.min()) == -np.inf:
        return np.where(np.isneginf(guided) | np.isneginf(other), guided, moved)
    return moved
