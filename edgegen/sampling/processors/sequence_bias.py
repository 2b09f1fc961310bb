"""Sequence bias and logit bias: make given tokens or token sequences more or less likely."""

from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from edgegen.options.sampling import TokenSequence
from edgegen.sampling.candidates import Candidates
from edgegen.sampling.processor import LogitsContext


class SequenceBias:
    """Adds a bias to the logit of each token that would complete one of the given sequences.

    A single token is completed everywhere. transformers' ``sequence_bias``; with single tokens only, OpenAI's
    ``logit_bias``.
    """

    def __init__(self, biases: Mapping[TokenSequence, float]) -> None:
        self._singles = {ids[0]: bias for ids, bias in biases.items() if len(ids) == 1}
        self._ids = np.array(sorted(self._singles), np.int64)
        self._biases = np.array([self._singles[i] for i in sorted(self._singles)], np.float32)
        # By the token before the last, so that most sequences are never looked at.
        self._longer: dict[int, list[tuple[TokenSequence, float]]] = defaultdict(list)
        for ids, bias in biases.items():
            if len(ids) > 1:
                self._longer[ids[-2]].append((ids, bias))

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        ids, biases = self._ids, self._biases
        completing = self._completing(context)
        if completing:
            merged = self._singles | {i: bias + self._singles.get(i, 0.0) for i, bias in completing.items()}
            ids = np.fromiter(merged.keys(), np.int64, len(merged))
            biases = np.fromiter(merged.values(), np.float32, len(merged))
        at, present = candidates.locate(ids)
        if not at.size:
            return candidates
        return candidates.replace(at, candidates.logits[at] + biases[present])

    def _completing(self, context: LogitsContext) -> dict[int, float]:
        """The tokens that would complete a longer sequence, each with the sum of its biases."""
        before = context.token_ids
        found: dict[int, float] = {}
        for ids, bias in self._longer.get(before[-1], ()) if before else ():
            # Like transformers, which wants one token more than it compares.
            if len(ids) <= len(before) and tuple(before[1 - len(ids) :]) == ids[:-1]:
                found[ids[-1]] = found.get(ids[-1], 0.0) + bias
        return found
