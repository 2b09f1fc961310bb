"""Minimum lengths: no end of sequence before a number of tokens."""

from collections.abc import Collection

import numpy as np

from edgegen.sampling.candidates import Candidates
from edgegen.sampling.processor import LogitsContext


class MinLength:
    """Masks the end-of-sequence ids until prompt and text together have ``length`` tokens."""

    def __init__(self, length: int, eos_token_ids: Collection[int]) -> None:
        self.length = length
        self._eos = np.array(sorted(eos_token_ids), np.int64)

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        return candidates.mask(self._eos) if len(context.token_ids) < self.length else candidates


class MinNewTokens:
    """Masks the end-of-sequence ids until ``count`` tokens have been generated."""

    def __init__(self, count: int, eos_token_ids: Collection[int]) -> None:
        self.count = count
        self._eos = np.array(sorted(eos_token_ids), np.int64)

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        return candidates.mask(self._eos) if context.step < self.count else candidates
