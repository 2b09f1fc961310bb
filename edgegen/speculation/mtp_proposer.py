"""MTPProposer: speculative decoding with a multi-token prediction head.

The head (DeepSeek-AI 2024, arXiv:2412.19437, section 2.2) reads the model's hidden states of a position, with the token
after it, and returns the logits of the token after that. It goes on from its own hidden states, as in EAGLE (Li et al.
2024, arXiv:2401.15077), to propose several; what its KV cache has of these is made again of the model's,
once these are known.
"""

from collections.abc import Sequence

from edgegen.speculation.expected_length import ExpectedLength
from edgegen.speculation.head_proposer import HeadProposer
from edgegen.speculation.mtp_head import Hidden, Logits, MTPHead
from edgegen.speculation.proposer import OnHiddenAt
from edgegen.speculation.token_choice import TokenChoice
from edgegen.speculation.unread_states import UnreadStates


class MTPProposer(HeadProposer):
    """Proposes for one sequence.

    Entry p of the head is made of the hidden states of position p and of the token at p + 1. It reads the entries from
    the first position on whose hidden states it is told: what a sequence took from another's KV cache it never sees.
    """

    def __init__(self, head: MTPHead, choice: TokenChoice, pace: ExpectedLength) -> None:
        super().__init__(choice, pace)
        self._head = head
        self._cache = head.new_cache()
        self._first = 0  # the position of the head's first entry
        self._read = 0  # entries up to here were made of the model's hidden states
        self._unread = UnreadStates()

    @property
    def on_hidden(self) -> OnHiddenAt:
        """Hears the model's hidden states."""
        return self._unread.put

    def propose_in_batch(self, token_ids: Sequence[int], sequences: int) -> list[int]:
        """As :meth:`propose`."""
        length = self._pace.affordable(len(token_ids), sequences)
        last = len(token_ids) - 1  # whose hidden states are yet to be computed
        if length < 1 or not self._unread.first < last <= self._unread.end:
            return []
        logits, hidden = self._catch_up(token_ids, last)
        ids = list(token_ids)
        while True:
            ids.append(self._choice.of(logits, ids))
            if len(ids) >= len(token_ids) + length:
                return ids[len(token_ids) :]
            logits, hidden = self._head.run(self._cache, ids[-1:], hidden)

    def _catch_up(self, token_ids: Sequence[int], last: int) -> tuple[Logits, Hidden]:
        """Read the entries before position ``last`` that were not read yet, of which there is at least one."""
        start = self._unread.first
        if start != self._read:  # something was left out
            self._first = self._read = start
        self._cache.truncate(0, start - self._first)
        hidden, chunk = self._unread.take(last), self._head.chunk
        self._read = last
        parts = (slice(at, at + chunk) for at in range(0, last - start, chunk))
        found = [self._head.run(self._cache, list(token_ids[start + 1 : last + 1][one]), hidden[one]) for one in parts]
        return found[-1]
