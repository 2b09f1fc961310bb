"""MTPProposer: speculative decoding with a multi-token prediction head.

The head (DeepSeek-AI 2024, arXiv:2412.19437, section 2.2) reads the model's hidden states of a position, with the token
after it, and returns the logits of the token after that. It goes on from its own hidden states, as in EAGLE (Li et al.
2024, arXiv:2401.15077), to propose several; what its KV cache has of these is made again of the model's,
once these are known.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from edgegen.speculation.expected_length import ExpectedLength
from edgegen.speculation.head_proposer import HeadProposer
from edgegen.speculation.mtp_head import Hidden, Logits, MTPHead
from edgegen.speculation.proposer import OnHiddenAt
from edgegen.speculation.token_choice import TokenChoice

LONGEST = 1024
"""Positions that are kept; of a longer text without proposals, the head reads the end."""


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


class UnreadStates:
    """The hidden states of the positions from ``first`` to ``end``."""

    def __init__(self) -> None:
        self.first = 0
        self._count = 0
        self._rows = np.zeros((0, 0), np.float32)

    @property
    def end(self) -> int:
        return self.first + self._count

    def put(self, first: int, hidden: NDArray[np.float32]) -> None:
        """Add the states of the positions from ``first`` on, [tokens, size]. Earlier ones stay, unless there is a
        gap."""
        if not self.first <= first <= self.end:
            self.first = first
        self._count = first - self.first
        together = self._count + len(hidden)
        if together > len(self._rows):
            rows = np.zeros((max(together, 2 * len(self._rows)), hidden.shape[1]), np.float32)
            if self._count:
                rows[: self._count] = self._rows[: self._count]
            self._rows = rows
        self._rows[self._count : together] = hidden
        self._count = together
        if together > 2 * LONGEST:  # seldom, so that a token does not move them all
            self.take(self.end - LONGEST)

    def take(self, end: int) -> NDArray[np.float32]:
        """Return the states of the positions before ``end``, [tokens, size], and forget them."""
        taken = end - self.first
        result = self._rows[:taken].copy()
        self._count -= taken
        self._rows[: self._count] = self._rows[taken : taken + self._count].copy()
        self.first = end
        return result
