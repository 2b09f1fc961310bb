"""CacheProposer: speculative decoding with a draft head that reads the model's own KV cache, as Gemma 4's assistants.

The head reads the embedding of the last token and the model's hidden states of the position before; it returns the
logits of the next token and hidden states in place of the model's. All steps of a proposal read the same KV cache, at
the same position. It keeps nothing: whatever was rejected, reused or moved, it begins with what the model has.
"""

from collections.abc import Callable, Sequence

import numpy as np

from edgegen.model.cache import Cache
from edgegen.model.kv_cache import KVCache
from edgegen.speculation.cache_head import CacheHead, Hidden
from edgegen.speculation.expected_length import ExpectedLength
from edgegen.speculation.head_proposer import HeadProposer
from edgegen.speculation.proposer import OnHiddenAt
from edgegen.speculation.token_choice import TokenChoice


class CacheProposer(HeadProposer):
    """Proposes for one sequence."""

    def __init__(self, head: CacheHead, choice: TokenChoice, pace: ExpectedLength) -> None:
        super().__init__(choice, pace)
        self._head = head
        self._place: tuple[KVCache, Callable[[], int]] | None = None
        self._first = 0
        self._heard: Hidden = np.zeros((0, 0), np.float32)

    @property
    def on_hidden(self) -> OnHiddenAt:
        """Hears the model's hidden states."""
        return self._hear

    def read_from(self, cache: Cache, slot: Callable[[], int]) -> None:
        """Told where the KV cache of the sequence is."""
        assert isinstance(cache, KVCache), "a head is opened beside a model with such a cache"
        self._place = cache, slot

    def propose_in_batch(self, token_ids: Sequence[int], sequences: int) -> list[int]:
        """As :meth:`propose`."""
        length = self._pace.affordable(len(token_ids), sequences)
        last = len(token_ids) - 1  # which is not in the KV cache yet
        row = last - 1 - self._first
        known = 0 <= row < len(self._heard) and last < self._head.max_context
        if length < 1 or not known or self._place is None:
            return []
        cache, slot = self._place[0], self._place[1]()
        if cache.truncatable_length(slot, last) < last or cache.lengths[slot] < last:
            return []
        binding, hidden, ids = self._head.begin(cache, slot, last), self._heard[row], list(token_ids)
        while len(ids) < len(token_ids) + length:
            logits, hidden = self._head.run(binding, ids[-1], hidden)
            ids.append(self._choice.of(logits, ids))
        return ids[len(token_ids) :]

    def _hear(self, first: int, hidden: Hidden) -> None:
        """``hidden`` [tokens, size], of the positions from ``first`` on: of the last run, and no others, are read."""
        self._first, self._heard = first, hidden.copy()
