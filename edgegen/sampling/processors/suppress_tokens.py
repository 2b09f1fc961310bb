"""Suppressed tokens: never generated, or not as the first token."""

from collections.abc import Collection

import numpy as np

from edgegen.sampling.candidates import Candidates
from edgegen.sampling.processor import LogitsContext


class SuppressTokens:
    """Masks ``token_ids`` at every step."""

    def __init__(self, token_ids: Collection[int]) -> None:
        self._ids = np.array(sorted(token_ids), np.int64)

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        return candidates.mask(self._ids)


class SuppressTokensAtBegin:
    """Masks ``token_ids`` for the first token; where that is forced (``after_forced_bos``), for the second."""

    def __init__(self, token_ids: Collection[int], *, after_forced_bos: bool = False) -> None:
        self._ids = np.array(sorted(token_ids), np.int64)
        self.after_forced_bos = after_forced_bos

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        begin = int(self.after_forced_bos and context.prompt_length == 1)
        return candidates.mask(self._ids) if context.step == begin else candidates
