"""Forced tokens: a given first token, and a given last one."""

from collections.abc import Collection

import numpy as np

from edgegen.sampling.candidates import Candidates
from edgegen.sampling.processor import LogitsContext


class ForcedBos:
    """Only ``token_id`` may follow a prompt of one token (``forced_bos_token_id``)."""

    def __init__(self, token_id: int) -> None:
        self._ids = np.array([token_id], np.int64)

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        return candidates.force(self._ids) if len(context.token_ids) == 1 else candidates


class ForcedEos:
    """Only one of ``token_ids`` may be the last of ``max_new_tokens`` (``forced_eos_token_id``)."""

    def __init__(self, token_ids: Collection[int], max_new_tokens: int) -> None:
        self._ids = np.array(sorted(token_ids), np.int64)
        self.max_new_tokens = max_new_tokens

    def __call__(self, candidates: Candidates, context: LogitsContext) -> Candidates:
        return candidates.force(self._ids) if context.step == self.max_new_tokens - 1 else candidates
